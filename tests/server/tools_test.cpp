// Calls of tools and reasoning in OpenAI's interface: with a model that says what the test has written down, whole and
// streamed; and with the shipped model's random text, kept to the tools by their grammar.
#include <gtest/gtest.h>

#include "base/file.h"
#include "server/scripted.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using testing::at;
using testing::Response;
using testing::Rig;
using testing::scripted;
using testing::text_of;

std::string template_named(std::string_view name) {
  return read_file(std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/session/data/calls" / name).value();
}

constexpr std::string_view kTools =
    R"("tools":[{"type":"function","function":{"name":"get_weather","description":"Weather.","parameters":{"type":)"
    R"("object","properties":{"city":{"type":"string","maxLength":12},"days":{"type":"integer","minimum":1,)"
    R"("maximum":9}},"required":["city"],"additionalProperties":false}}},{"type":"function","function":{"name":"now"}}])";

std::string body(std::string_view fields) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"Weather?"}}],{}}})", fields);
}

const std::string kCall =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Par\\\"is</tool_call>\"}}\n"
    "</tool_call>";
const std::string kArguments = R"({"city": "Par\"is</tool_call>"})";

Json answer(Rig& rig, std::string_view fields) {
  const Response response = rig.post("/v1/chat/completions", body(fields));
  EXPECT_EQ(response.status, 200) << response.body;
  return response.status == 200 ? at(response.json(), "choices", 0) : Json(JsonObject{});
}

// What a stream says, put together as a client does it; the order of things is checked on the way.
struct Told {
  std::string content, reasoning, reason;
  std::vector<std::string> ids, names, arguments;
  Json usage;
  auto parts() const { return std::tie(content, reasoning, reason, names, arguments); }
};

Told streamed(Rig& rig, std::string_view fields) {
  const Response response =
      rig.post("/v1/chat/completions",
               body(fmt::format(R"({},"stream":true,"stream_options":{{"include_usage":true}})", fields)));
  EXPECT_EQ(response.status, 200) << response.body;
  Told told;
  bool role = false;
  for (const std::string& event : response.events()) {
    if (event == "[DONE]") break;
    const Json json = parse_json(event).value();
    if (at(json, "choices").get_array().empty()) {
      told.usage = at(json, "usage");
      continue;
    }
    const Json& choice = at(json, "choices", 0);
    const Json& delta = at(choice, "delta");
    EXPECT_TRUE(told.reason.empty()) << "after the end: " << event;
    EXPECT_EQ(find(delta, "role") != nullptr, !role) << event;
    role = true;
    if (const Json* text = find(delta, "content")) told.content += text_of(*text);
    if (const Json* text = find(delta, "reasoning_content")) told.reasoning += text_of(*text);
    if (const Json* calls = find(delta, "tool_calls")) {
      EXPECT_EQ(calls->get_array().size(), 1U);
      const Json& call = calls->get_array()[0];
      const auto index = static_cast<size_t>(at(call, "index").get_int64());
      if (const Json* id = find(call, "id")) {  // the head comes first, with everything but arguments
        EXPECT_EQ(index, told.ids.size()) << event;
        EXPECT_EQ(text_of(at(call, "type")), "function");
        EXPECT_EQ(text_of(at(call, "function", "arguments")), "");
        told.ids.push_back(text_of(*id));
        told.names.push_back(text_of(at(call, "function", "name")));
        told.arguments.emplace_back();
      } else {
        EXPECT_EQ(index + 1, told.ids.size()) << event;
        EXPECT_EQ(find(at(call, "function"), "name"), nullptr);
        told.arguments.back() += text_of(at(call, "function", "arguments"));
      }
    }
    if (const Json* reason = find(choice, "finish_reason")) told.reason = text_of(*reason);
  }
  return told;
}

TEST(Tools, AWholeAnswerHasItsCalls) {
  Rig rig({}, scripted(template_named("json.jinja"), "Let me look.\n" + kCall +
                                                         "\n<tool_call>\n{\"name\": \"now\", "
                                                         "\"arguments\": {}}\n</tool_call>"));
  const Json choice = answer(rig, kTools);
  EXPECT_EQ(text_of(at(choice, "finish_reason")), "tool_calls");
  const Json& message = at(choice, "message");
  EXPECT_EQ(text_of(at(message, "role")), "assistant");
  EXPECT_EQ(text_of(at(message, "content")), "Let me look.");
  ASSERT_EQ(at(message, "tool_calls").get_array().size(), 2U);
  const Json &first = at(message, "tool_calls", 0), &second = at(message, "tool_calls", 1);
  EXPECT_EQ(text_of(at(first, "type")), "function");
  EXPECT_EQ(text_of(at(first, "function", "name")), "get_weather");
  EXPECT_EQ(text_of(at(first, "function", "arguments")), kArguments);
  EXPECT_EQ(text_of(at(second, "function", "name")), "now");
  EXPECT_EQ(text_of(at(second, "function", "arguments")), "{}");
  EXPECT_TRUE(text_of(at(first, "id")).starts_with("call_"));
  EXPECT_EQ(text_of(at(first, "id")).size(), 29U);
  EXPECT_NE(text_of(at(first, "id")), text_of(at(second, "id")));
  // Without tools, or with none to be called, it is text.
  EXPECT_TRUE(text_of(at(answer(rig, R"("n":1)"), "message", "content")).ends_with("</tool_call>"));
  const Json none = answer(rig, fmt::format(R"({},"tool_choice":"none")", kTools));
  EXPECT_EQ(find(at(none, "message"), "tool_calls"), nullptr);
  EXPECT_EQ(text_of(at(none, "finish_reason")), "stop");
}

TEST(Tools, ContentIsNullBesideCallsAlone) {
  Rig rig({}, scripted(template_named("json.jinja"), kCall));
  const Json choice = answer(rig, kTools);
  ASSERT_TRUE(choice.is_object());
  const Json* content = at(choice, "message").get_object().if_contains("content");
  ASSERT_NE(content, nullptr);
  EXPECT_TRUE(content->is_null());
  EXPECT_EQ(text_of(at(choice, "finish_reason")), "tool_calls");
}

TEST(Tools, AStreamIsTheSameHoweverItIsCut) {
  const std::string text = "<think>\nHm, é.\n</think>\n\nLet me look.\n" + kCall + "\n" + kCall + "\nDone.";
  std::optional<Told> first;
  for (int step : {1, 2, 5, 1000}) {
    Rig rig({}, scripted(template_named("json.jinja"), text, step));
    const Told told = streamed(rig, kTools);
    EXPECT_EQ(told.reasoning, "Hm, é.");
    EXPECT_EQ(told.content, "Let me look.Done.");
    EXPECT_EQ(told.names, (std::vector<std::string>{"get_weather", "get_weather"}));
    EXPECT_EQ(told.arguments, (std::vector<std::string>{kArguments, kArguments}));
    EXPECT_EQ(told.reason, "tool_calls");
    EXPECT_GT(at(told.usage, "completion_tokens_details", "reasoning_tokens").get_int64(), 0);
    if (first) {
      EXPECT_EQ(told.parts(), first->parts()) << step;
    }
    first = told;
  }
}

TEST(Tools, WhatIsWrittenWronglyIsContentWhole) {
  for (const std::string text : {"<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>",
                                 "<tool_call>{\"nam", "I would write <tool_call> and stop."}) {
    Rig rig({}, scripted(template_named("json.jinja"), text));
    const Json choice = answer(rig, kTools);
    EXPECT_EQ(text_of(at(choice, "message", "content")), text);
    EXPECT_EQ(text_of(at(choice, "finish_reason")), "stop");
    const Told told = streamed(rig, kTools);
    EXPECT_EQ(told.content, text);
    EXPECT_TRUE(told.names.empty());
  }
}

TEST(Tools, ThousandsOfCallsUntilTheLength) {
  std::string text;
  for (int i = 0; i < 1500; ++i) text += "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n";
  text += "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"P";
  Rig rig({}, scripted(template_named("json.jinja"), text, 64, Finish::length));
  const Json choice = answer(rig, kTools);
  EXPECT_EQ(text_of(at(choice, "finish_reason")), "length");
  ASSERT_EQ(at(choice, "message", "tool_calls").get_array().size(), 1501U);
  EXPECT_EQ(text_of(at(choice, "message", "tool_calls", 1500, "function", "arguments")), "{\"city\": \"P");
  const Told told = streamed(rig, kTools);
  EXPECT_EQ(told.names.size(), 1501U);
  EXPECT_EQ(std::set<std::string>(told.ids.begin(), told.ids.end()).size(), 1501U);
}

TEST(Tools, StopStringsEndContentAndNoCall) {
  Rig rig({}, scripted(template_named("json.jinja"), "Look. " + kCall + "\nand Paris is it"));
  const Told told = streamed(rig, fmt::format(R"({},"stop":["Par","Look. <"])", kTools));
  EXPECT_EQ(told.content, "Look.and ");
  EXPECT_EQ(told.arguments, std::vector<std::string>{kArguments});
  EXPECT_EQ(told.reason, "tool_calls");
}

TEST(Tools, ReasoningIsTakenFromThePromptsEnd) {
  Rig rig({}, scripted(template_named("json.jinja"), "So.\n</think>\n\nYes.", 1));
  const Json open = answer(rig, R"("chat_template_kwargs":{"enable_thinking":true})");
  EXPECT_EQ(text_of(at(open, "message", "reasoning_content")), "So.");
  EXPECT_EQ(text_of(at(open, "message", "content")), "Yes.");
  const Json effort = answer(rig, R"("reasoning_effort":"high")");
  EXPECT_EQ(text_of(at(effort, "message", "reasoning_content")), "So.");
  const Json closed = answer(rig, R"("reasoning_effort":"none")");
  EXPECT_EQ(find(at(closed, "message"), "reasoning_content"), nullptr);
  EXPECT_EQ(text_of(at(closed, "message", "content")), "So.\n</think>\n\nYes.");
}

TEST(Tools, MessagesWithCallsReachTheTemplate) {
  Rig rig({}, scripted(template_named("json.jinja"), "x"));
  const std::string messages =
      R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"reasoning_content":"Hm.",)"
      R"("tool_calls":[{"id":"call_1","type":"function","function":{"name":"now","arguments":"{\"a\": 1}"}}]},)"
      R"({"role":"tool","tool_call_id":"call_1","content":[{"type":"text","text":"noon"}]}],)";
  const Response shown = rig.post("/apply-template", messages + std::string(kTools) + "}");
  ASSERT_EQ(shown.status, 200) << shown.body;
  const std::string prompt = text_of(at(shown.json(), "prompt"));
  EXPECT_NE(prompt.find("\"name\": \"get_weather\""), std::string::npos) << prompt;
  EXPECT_NE(prompt.find("<think>\nHm.\n</think>\n\n\n<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": 1}}\n"
                        "</tool_call><|end|>\n<|tool|>\n[call_1]\nnoon<|end|>\n<|assistant|>\n"),
            std::string::npos)
      << prompt;
  const Response none = rig.post("/apply-template", messages + std::string(kTools) + R"(,"tool_choice":"none"})");
  EXPECT_EQ(text_of(at(none.json(), "prompt")).find("get_weather"), std::string::npos) << none.body;
}

TEST(Tools, TheOlderWordsGetTheOlderShape) {
  Rig rig({}, scripted(template_named("json.jinja"), kCall));
  const std::string functions = R"("functions":[{"name":"get_weather","parameters":{"type":"object"}}])";
  const Json choice = answer(rig, functions);
  EXPECT_EQ(text_of(at(choice, "finish_reason")), "function_call");
  EXPECT_EQ(text_of(at(choice, "message", "function_call", "name")), "get_weather");
  EXPECT_EQ(text_of(at(choice, "message", "function_call", "arguments")), kArguments);
  const Response stream = rig.post("/v1/chat/completions", body(functions + R"(,"stream":true)"));
  std::string name, arguments;
  for (const std::string& event : stream.events()) {
    if (event == "[DONE]") break;
    const Json json = parse_json(event).value();
    const Json* call = find(at(json, "choices", 0, "delta"), "function_call");
    if (call == nullptr) continue;
    if (const Json* said = find(*call, "name")) name += text_of(*said);
    arguments += text_of(at(*call, "arguments"));
  }
  EXPECT_EQ(name, "get_weather");
  EXPECT_EQ(arguments, kArguments);
}

TEST(Tools, WhatCannotBeIsRefused) {
  Rig rig({}, scripted(template_named("json.jinja"), "x"));
  const std::string tools(kTools);
  const std::pair<std::string, std::string> cases[] = {
      {R"("tools":[{"type":"function","function":{"name":"a b"}}])", "tools.[0].function.name"},
      {R"("tools":[{"type":"function","function":{}}])", "tools.[0].function.name"},
      {R"("tools":[{"type":"custom","custom":{"name":"a"}}])", "tools.[0].type"},
      {R"("tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}])",
       "tools.[1].function.name"},
      {R"("tools":[{"type":"function","function":{"name":"a","parameters":5}}])", "tools.[0].function.parameters"},
      {tools + R"(,"tool_choice":"sometimes")", "tool_choice"},
      {tools + R"(,"tool_choice":{"type":"function","function":{"name":"other"}})", "tool_choice"},
      {tools + R"(,"tool_choice":{"type":"function"})", "tool_choice"},
      {tools + R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"all","tools":[]}})", "tool_choice"},
      {R"("tool_choice":"required")", "tool_choice"},
      {tools + R"(,"functions":[{"name":"a"}])", "functions"},
      {tools + R"(,"tool_choice":"required","min_tokens":5)", "min_tokens"},
      {tools + R"(,"guided_regex":"a+")", "guided_regex"},
      {R"("tools":[{"type":"function","function":{"name":"a","strict":true,"parameters":{"type":"object",)"
       R"("properties":{"x":{"pattern":"(a)\\1"}}}}}])",
       "tools/0/parameters/properties/x/pattern"},
  };
  for (const auto& [fields, param] : cases) {
    const Response response = rig.post("/v1/chat/completions", body(fields));
    EXPECT_EQ(response.status, 400) << fields << response.body;
    EXPECT_EQ(text_of(at(response.json(), "error", "param")), param) << response.body;
  }
}

TEST(Tools, ATemplateThatKnowsNoneIsNamed) {
  Rig rig;
  const Response response = rig.post("/v1/chat/completions", body(kTools));
  EXPECT_EQ(response.status, 400) << response.body;
  EXPECT_EQ(text_of(at(response.json(), "error", "param")), "tools");
  EXPECT_NE(text_of(at(response.json(), "error", "message")).find("'stories'"), std::string::npos) << response.body;
}

ServedModel writing(std::string_view name) {
  ServedModel served{.name = "stories", .fingerprint = "fp", .loaded = testing::model_with(template_named(name), true)};
  EngineOptions options;
  options.executor.context = 1024;
  options.limits.max_sequences = 8;
  options.limits.step_tokens = 128;
  served.engine = Engine::create(served.loaded->model(), served.loaded->backend(), options).value();
  return served;
}

void expect_call(const Json& call, bool weather) {
  const std::string name = text_of(at(call, "function", "name"));
  auto arguments = parse_json(text_of(at(call, "function", "arguments")));
  ASSERT_TRUE(arguments.ok()) << to_text(call);
  ASSERT_TRUE(arguments->is_object()) << to_text(call);
  if (name == "now" && !weather) {
    EXPECT_TRUE(arguments->get_object().empty());
    return;
  }
  EXPECT_EQ(name, "get_weather");
  EXPECT_LE(at(*arguments, "city").get_string().size(), 48U);
  for (const auto& member : arguments->get_object())
    EXPECT_TRUE(member.key() == "city" || member.key() == "days") << to_text(call);
  const Json* days = find(*arguments, "days");
  EXPECT_TRUE(days == nullptr || (days->is_int64() && days->get_int64() >= 1)) << to_text(call);
}

TEST(Tools, RequiredNamedAndStrictCallsAreKeptTo) {
  for (const char* name : {"json.jinja", "tags.jinja", "pairs.jinja", "list.jinja"}) {
    Rig rig({}, writing(name));
    int finished = 0;
    for (int seed = 1; seed <= 2; ++seed) {
      const std::string sampled = fmt::format(
          R"({},"seed":{},"temperature":1.2,"max_tokens":100,"chat_template_kwargs":{{"enable_thinking":false}},)",
          kTools, seed);
      const Json required = answer(rig, sampled + R"("tool_choice":"required","parallel_tool_calls":false)");
      if (text_of(at(required, "finish_reason")) == "tool_calls") {
        ++finished;
        ASSERT_EQ(at(required, "message", "tool_calls").get_array().size(), 1U);
        expect_call(at(required, "message", "tool_calls", 0), false);
      }
      const Json named =
          answer(rig, sampled + R"("tool_choice":{"type":"function","function":{"name":"get_weather"}})");
      if (text_of(at(named, "finish_reason")) == "tool_calls") {
        ++finished;
        expect_call(at(named, "message", "tool_calls", 0), true);
      }
      EXPECT_TRUE(at(named, "message").get_object().at("content").is_null()) << to_text(named);
      const Json allowed =
          answer(rig, sampled + R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":)"
                                R"([{"type":"function","function":{"name":"now"}}]}})");
      for (const Json& call : at(allowed, "message", "tool_calls").get_array())
        EXPECT_EQ(text_of(at(call, "function", "name")), "now") << name;
    }
    EXPECT_GE(finished, 2) << name;
  }
}

TEST(Tools, AnswersAreCallsOrWhatTheSchemaSays) {
  Rig rig({}, writing("json.jinja"));
  for (int seed = 1; seed <= 4; ++seed) {
    const Json choice =
        answer(rig, fmt::format(R"({},"seed":{},"temperature":1.5,"max_tokens":120,"response_format":{{"type":)"
                                R"("json_schema","json_schema":{{"name":"x","schema":{{"enum":["yes","no"]}}}}}})",
                                kTools, seed));
    if (text_of(at(choice, "finish_reason")) != "stop") continue;
    const std::string content = text_of(at(choice, "message", "content"));
    const auto said = parse_json(content);
    EXPECT_TRUE(said.ok() && (*said == Json("yes") || *said == Json("no"))) << content;
  }
}

TEST(Tools, TwoHundredWithAMegabyteOfSchemas) {
  Rig rig({}, scripted(template_named("json.jinja"), kCall));
  std::string tools;
  for (int i = 0; i < 200; ++i) {
    std::string properties;
    for (int k = 0; k < 40; ++k)
      properties += fmt::format(R"({}"property_{}":{{"type":["string","null"],"description":"{}"}})", k > 0 ? "," : "",
                                k, std::string(80, 'd'));
    tools += fmt::format(R"({}{{"type":"function","function":{{"name":"tool_{}","strict":true,"parameters":{{"type":)"
                         R"("object","properties":{{{}}}}}}}}})",
                         i > 0 ? "," : "", i, properties);
  }
  ASSERT_GT(tools.size(), 1'000'000U);
  const Response response = rig.post("/v1/chat/completions", body(fmt::format(R"("tools":[{}])", tools)));
  ASSERT_EQ(response.status, 200) << response.body.substr(0, 400);
  // None of them is the one that was called.
  EXPECT_EQ(text_of(at(response.json(), "choices", 0, "message", "content")), kCall);
}

}  // namespace
}  // namespace millrace
#endif
