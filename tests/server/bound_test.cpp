// Answers bound to a schema, an expression, a choice or rules, as every interface's fields ask for them: what comes is
// valid, the same alone and in a crowd, preempted and guessed ahead; what cannot be is refused with field and pointer.
#include <gtest/gtest.h>

#include <regex>

#include "engine/draft/suffix.h"
#include "server/rig.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using testing::at;
using testing::Client;
using testing::Response;
using testing::Rig;
using testing::served_model;
using testing::text_of;

constexpr std::string_view kHero =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":0,)"
    R"("maximum":99},"kind":{"enum":["cat","dog"]}},"required":["name","age","kind"],"additionalProperties":false})";

std::string body(std::string_view fields, int seed = 1, int tokens = 120) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"Tell me."}}],"max_tokens":{},"seed":{},{}}})", tokens,
                     seed, fields);
}

std::string content(const Response& response, int choice = 0) {
  EXPECT_EQ(response.status, 200) << response.body;
  return response.status == 200 ? text_of(at(response.json(), "choices", choice, "message", "content")) : "";
}

void expect_hero(const std::string& text) {
  auto json = parse_json(text);
  ASSERT_TRUE(json.ok()) << text;
  ASSERT_TRUE(json->is_object()) << text;
  EXPECT_EQ(json->get_object().size(), 3U) << text;
  EXPECT_LE(at(*json, "name").get_string().size(), 48U);
  const Json& age = at(*json, "age");
  EXPECT_TRUE(age.is_int64() && age.get_int64() >= 0 && age.get_int64() <= 99) << text;
  EXPECT_TRUE(at(*json, "kind") == Json("cat") || at(*json, "kind") == Json("dog")) << text;
}

// Every way to say it, and what then comes.
TEST(Bound, EveryFieldBinds) {
  Rig rig;
  for (const std::string& fields :
       {fmt::format(
            R"("response_format":{{"type":"json_schema","json_schema":{{"name":"h","strict":true,"schema":{}}}}})",
            kHero),
        fmt::format(R"("response_format":{{"type":"json_object","schema":{}}})", kHero),
        fmt::format(R"("structured_outputs":{{"json":{}}})", kHero), fmt::format(R"("guided_json":{})", kHero),
        fmt::format(R"("json_schema":{})", kHero), fmt::format(R"("guided_json":{})", to_text(Json(kHero)))})
    expect_hero(content(rig.post("/v1/chat/completions", body(fields))));
  const std::pair<const char*, const char*> patterns[] = {
      {R"("structured_outputs":{"regex":"[a-c]{3}[0-9]"})", "[a-c]{3}[0-9]"},
      {R"("guided_regex":"[a-c]{3}[0-9]")", "[a-c]{3}[0-9]"},
      {R"("structured_outputs":{"choice":["red fox","green"]})", "red fox|green"},
      {R"("guided_choice":["red fox","green"])", "red fox|green"},
      {R"("grammar":"root ::= \"x\" [0-9] [0-9] | \"y\"")", "x[0-9][0-9]|y"},
      {R"("guided_grammar":"start: \"x\" DIGIT\nDIGIT: /[0-9]/")", "x[0-9]"},
      {R"("structured_outputs":{"grammar":"root ::= \"ab\" | \"cd\""})", "ab|cd"},
  };
  for (const auto& [fields, pattern] : patterns) {
    const std::string text = content(rig.post("/v1/chat/completions", body(fields)));
    EXPECT_TRUE(std::regex_match(text, std::regex(pattern))) << fields << " gave " << text;
  }
  for (const char* fields :
       {R"("response_format":{"type":"json_object"})", R"("structured_outputs":{"json_object":true})"}) {
    const Response response = rig.post("/v1/chat/completions", body(fields));
    const std::string text = content(response);
    EXPECT_TRUE(text.starts_with('{')) << text;
    if (at(response.json(), "choices", 0, "finish_reason") == Json("stop")) {
      EXPECT_TRUE(parse_json(text).ok()) << text;
    }
  }
  // What asks for nothing binds nothing.
  for (const char* fields : {R"("response_format":{"type":"text"})", R"("grammar":"")", R"("structured_outputs":{})"})
    EXPECT_EQ(content(rig.post("/v1/chat/completions", body(fields))),
              content(rig.post("/v1/chat/completions", body(R"("n":1)"))));
}

TEST(Bound, CompletionsAndStreamsToo) {
  Rig rig;
  const std::string fields = fmt::format(R"("prompt":"A hero: ","max_tokens":200,"seed":4,"guided_json":{})", kHero);
  const Response whole = rig.post("/v1/completions", fmt::format("{{{}}}", fields));
  ASSERT_EQ(whole.status, 200) << whole.body;
  const std::string text = text_of(at(whole.json(), "choices", 0, "text"));
  expect_hero(text);
  const Response stream = rig.post("/v1/completions", fmt::format(R"({{{},"stream":true}})", fields));
  std::string joined;
  for (const std::string& event : stream.events()) {
    if (event != "[DONE]") joined += text_of(at(parse_json(event).value(), "choices", 0, "text"));
  }
  EXPECT_EQ(joined, text);
}

TEST(Bound, WhatCannotBeIsRefusedWithFieldAndPointer) {
  Rig rig;
  struct Case {
    std::string fields, param, code;
  };
  auto format = [](std::string_view schema) {
    return fmt::format(R"("response_format":{{"type":"json_schema","json_schema":{{"name":"x","schema":{}}}}})",
                       schema);
  };
  const std::string field = "response_format.json_schema.schema";
  const Case cases[] = {
      {format(R"({"properties":{"a":{"pattern":"(a)\\1"}}})"), field + "/properties/a/pattern", "invalid_schema"},
      {format(R"({"unevaluatedProperties":false})"), field + "/unevaluatedProperties", "invalid_schema"},
      {format(R"({"$ref":"#"})"), field, "invalid_schema"},
      {format(R"({"type":"string","minLength":3,"maxLength":2})"), field, "invalid_schema"},
      {format("5"), field, "invalid_schema"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema", "missing_required_parameter"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})", field, "missing_required_parameter"},
      {R"("guided_json":5)", "guided_json", "invalid_value"},
      {R"("guided_regex":"(")", "guided_regex", "invalid_grammar"},
      {R"("guided_regex":"(a{1,9999}){1,9999}")", "guided_regex", "invalid_grammar"},
      {R"("guided_choice":[""])", "guided_choice", "invalid_grammar"},
      {R"("guided_choice":[])", "guided_choice", "invalid_value"},
      {R"("grammar":"root ::= root")", "grammar", "invalid_grammar"},
      {R"("grammar":"root ::= missing")", "grammar", "invalid_grammar"},
      {R"("grammar":"root ::= \"a\"","guided_regex":"b")", "grammar", "invalid_value"},
      {R"("guided_regex":"a","min_tokens":3)", "min_tokens", "invalid_value"},
      {R"("guided_regex":"a","ignore_eos":true)", "ignore_eos", "invalid_value"},
  };
  for (const Case& one : cases) {
    const Response response = rig.post("/v1/chat/completions", body(one.fields));
    EXPECT_EQ(response.status, 400) << one.fields << response.body;
    EXPECT_EQ(text_of(at(response.json(), "error", "param")), one.param) << response.body;
    EXPECT_EQ(text_of(at(response.json(), "error", "code")), one.code) << response.body;
  }
  EXPECT_TRUE(testing::eventually([&] { return rig.quiet(); }));
}

TEST(Bound, UnknownFormatsAreNamed) {
  Rig rig;
  const Response response = rig.post("/v1/chat/completions", body(R"("guided_json":{"enum":["a"],"format":"colour"})"));
  EXPECT_EQ(content(response), "\"a\"");
  EXPECT_NE(response.headers.at("x-millrace-ignored").find("colour"), std::string::npos);
}

// Requests with grammars, samplers and counts of all kinds beside free ones.
std::vector<std::string> mixed() {
  std::vector<std::string> all;
  const std::string bounds[] = {
      fmt::format(R"("guided_json":{})", kHero),           R"("response_format":{"type":"json_object"})",
      R"("guided_regex":"([a-z]+ ){3,9}[a-z]+\\.")",       R"("guided_choice":["one","two","three","thirteen"])",
      R"("grammar":"root ::= \"(\" root \")\" | [a-z]+")", R"("logprobs":true)"};
  const std::string samplers[] = {R"("temperature":0)",
                                  R"("temperature":1,"top_k":0,"top_p":1,"min_p":0)",
                                  R"("temperature":1.2,"top_p":0.8)",
                                  R"("mirostat":2)",
                                  R"("temperature":1,"xtc_probability":0.5,"dry_multiplier":0.8)",
                                  R"("typical_p":0.7,"repetition_penalty":1.2,"n":3)",
                                  R"("top_n_sigma":1,"logit_bias":{"300":3},"n":2)"};
  int seed = 1;
  for (const std::string& bound : bounds)
    for (const std::string& sampler : samplers) all.push_back(body(bound + "," + sampler, ++seed, 40));
  return all;
}

std::string choices_of(const Response& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  return response.status == 200 ? to_text(at(response.json(), "choices")) : "";
}

std::vector<std::string> together(Rig& rig, const std::vector<std::string>& bodies) {
  std::vector<std::unique_ptr<Client>> clients;
  for (const std::string& one : bodies) {
    clients.push_back(std::make_unique<Client>(rig.port()));
    clients.back()->ask("POST", "/v1/chat/completions", one);
  }
  std::vector<std::string> answers;
  for (auto& client : clients) answers.push_back(choices_of(client->answer()));
  return answers;
}

ServedModel with(int pages, bool guesses) {
  ServedModel served{.name = "stories", .fingerprint = "fp_test", .loaded = testing::shipped_model(), .created = 1};
  EngineOptions options;
  options.executor.context = 512;
  options.executor.pages = pages;
  options.limits.max_sequences = 8;
  options.limits.step_tokens = 96;
  options.limits.max_waiting = 256;
  if (guesses) {
    options.draft.make = [](Executor& target, Backend& backend) { return SuffixDrafter::create({}, target, backend); };
    options.draft.steady = true;
  }
  served.engine = Engine::create(served.loaded->model(), served.loaded->backend(), options).value();
  return served;
}

TEST(Bound, AloneInACrowdPreemptedAndGuessedAheadAreTheSame) {
  const std::vector<std::string> bodies = mixed();
  std::vector<std::string> alone;
  {
    Rig rig;
    for (const std::string& one : bodies) alone.push_back(choices_of(rig.post("/v1/chat/completions", one)));
  }
  {
    Rig rig({}, with(0, false));
    EXPECT_EQ(together(rig, bodies), alone) << "in a crowd";
  }
  {
    Rig rig({}, with(16, false));  // of some 32 that are wanted
    // On a busy machine they may not have come together.
    for (int i = 0; i < 50 && (i == 0 || rig.metrics().preemptions == 0); ++i) {
      EXPECT_EQ(together(rig, bodies), alone) << "preempted";
    }
    EXPECT_GT(rig.metrics().preemptions, 0);
  }
  Rig rig({}, with(0, true));
  EXPECT_EQ(together(rig, bodies), alone) << "guessed ahead";
  EXPECT_GT(rig.metrics().accepted_drafts, 0);
}

}  // namespace
}  // namespace millrace
#endif
