// Limits on reasoning, as every interface's fields say them: so many tokens are thought as they are without a limit,
// then the mark that ends it is written, and what follows is what was asked for; alone, in a crowd, preempted and
// guessed ahead alike.
#include <gtest/gtest.h>

#include "base/file.h"
#include "engine/draft/suffix.h"
#include "server/scripted.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using testing::at;
using testing::Client;
using testing::Response;
using testing::Rig;
using testing::text_of;

constexpr std::string_view kOpen = R"("chat_template_kwargs":{"enable_thinking":true})";

std::shared_ptr<LoadedModel> thinker() {
  static const auto model = testing::model_with(
      read_file(std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/session/data/calls/json.jinja").value(), true);
  return model;
}

ServedModel thinking(int pages = 0, bool guesses = false) {
  ServedModel served{.name = "stories", .fingerprint = "fp_test", .loaded = thinker(), .created = 1};
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

std::string body(std::string_view fields, int seed = 1, int tokens = 48) {
  return fmt::format(
      R"({{"messages":[{{"role":"user","content":"Tell me."}}],"max_tokens":{},"seed":{},"return_token_ids":true,{}}})",
      tokens, seed, fields);
}

struct Answered {
  std::vector<Token> ids;
  std::string reasoning, content;
  int64_t thought = 0;
};

Answered asked(Rig& rig, const std::string& sent) {
  Answered out;
  const Response response = rig.post("/v1/chat/completions", sent);
  EXPECT_EQ(response.status, 200) << response.body;
  if (response.status != 200) return out;
  const Json json = response.json();
  for (const Json& id : at(json, "choices", 0, "token_ids").get_array())
    out.ids.push_back(static_cast<Token>(id.get_int64()));
  const Json& message = at(json, "choices", 0, "message");
  if (const Json* text = find(message, "reasoning_content")) out.reasoning = text_of(*text);
  if (const Json* text = find(message, "content")) out.content = text_of(*text);
  if (const Json* details = find(at(json, "usage"), "completion_tokens_details"))
    if (const Json* count = find(*details, "reasoning_tokens")) out.thought = count->to_number<int64_t>();
  return out;
}

std::vector<Token> first(const std::vector<Token>& tokens, size_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(std::min(count, tokens.size()))};
}

TEST(ThoughtLimit, EveryNameEndsReasoningWhereItSays) {
  Rig rig({}, thinking());
  const std::vector<Token> close = thinker()->tokenizer()->encode("</think>").value();
  int seed = 0;
  for (std::string_view name : {"thinking_budget", "thinking_token_budget", "thinking_budget_tokens",
                                "reasoning_budget", "reasoning_budget_tokens", "kwargs"}) {
    for (size_t limit : {1, 6}) {
      const std::string fields =
          name == "kwargs"
              ? fmt::format(R"("chat_template_kwargs":{{"enable_thinking":true,"thinking_budget":{}}})", limit)
              : fmt::format(R"("{}":{},{})", name, limit, kOpen);
      const Answered free = asked(rig, body(kOpen, ++seed)), limited = asked(rig, body(fields, seed));
      ASSERT_GT(free.ids.size(), limit) << "a seed that ends at once";
      std::vector<Token> expected = first(free.ids, limit);
      expected.insert(expected.end(), close.begin(), close.end());
      EXPECT_EQ(first(limited.ids, expected.size()), expected) << name << " " << limit;
      EXPECT_EQ(limited.thought, static_cast<int64_t>(limit + close.size() - 1)) << name;
      EXPECT_EQ(limited.content.find("</think>"), std::string::npos);
      EXPECT_TRUE(free.reasoning.starts_with(limited.reasoning)) << free.reasoning << "\n" << limited.reasoning;
    }
  }
}

TEST(ThoughtLimit, NoneAtAllIsNoReasoning) {
  Rig rig({}, thinking());
  const Answered none = asked(rig, body(R"("thinking_budget":0)")),
                 off = asked(rig, body(R"("reasoning_effort":"none")"));
  EXPECT_EQ(none.ids, off.ids);
  EXPECT_EQ(none.thought, 0);
  EXPECT_EQ(none.reasoning, "");
  // A prompt that begins it all the same: its end is the first thing that is written.
  const std::vector<Token> close = thinker()->tokenizer()->encode("</think>").value();
  const Answered open = asked(rig, body(fmt::format(R"("thinking_budget":0,{})", kOpen)));
  EXPECT_EQ(first(open.ids, close.size()), close);
  EXPECT_EQ(open.reasoning, "");
  // Without a limit that says anything.
  EXPECT_EQ(asked(rig, body(fmt::format(R"("thinking_budget":-1,{})", kOpen))).ids, asked(rig, body(kOpen)).ids);
}

TEST(ThoughtLimit, ASchemaHoldsAfterIt) {
  Rig rig({}, thinking());
  const std::vector<Token> close = thinker()->tokenizer()->encode("</think>").value();
  for (int seed = 1; seed <= 3; ++seed) {
    const Answered answer =
        asked(rig, body(fmt::format(R"("thinking_budget":5,"guided_json":{{"enum":["yes","no"]}},{})", kOpen), seed));
    EXPECT_TRUE(answer.content == "\"yes\"" || answer.content == "\"no\"") << answer.content;
    EXPECT_EQ(answer.thought, static_cast<int64_t>(5 + close.size() - 1));
    EXPECT_NE(answer.reasoning, "");
  }
}

TEST(ThoughtLimit, CallsThatMustBeComeAfterIt) {
  Rig rig({}, thinking());
  const Response response = rig.post(
      "/v1/chat/completions",
      body(fmt::format(R"("thinking_budget":5,"tool_choice":"required","parallel_tool_calls":false,"tools":[{{"type":)"
                       R"("function","function":{{"name":"now"}}}}],{})",
                       kOpen),
           1, 120));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(text_of(at(response.json(), "choices", 0, "message", "tool_calls", 0, "function", "name")), "now");
  EXPECT_EQ(text_of(at(response.json(), "choices", 0, "finish_reason")), "tool_calls");
}

TEST(ThoughtLimit, OfMessages) {
  Rig rig({}, thinking());
  const auto message = [&](std::string_view thinking) {
    return rig.post("/v1/messages",
                    fmt::format(R"({{"messages":[{{"role":"user","content":"Tell me."}}],"max_tokens":48,)"
                                R"("seed":1,"thinking":{}}})",
                                thinking));
  };
  const Response limited = message(R"({"type":"enabled","budget_tokens":6})");
  ASSERT_EQ(limited.status, 200) << limited.body;
  const Answered same = asked(rig, body(fmt::format(R"("thinking_budget":6,{})", kOpen)));
  EXPECT_EQ(text_of(at(limited.json(), "content", 0, "thinking")), same.reasoning);
  EXPECT_EQ(text_of(at(limited.json(), "content", 1, "text")), same.content);
  EXPECT_FALSE(limited.headers.contains("x-millrace-ignored"));
  const Response none = message(R"({"type":"enabled","budget_tokens":0})");
  EXPECT_EQ(text_of(at(none.json(), "content", 0, "type")), "text") << none.body;
  Response adaptive = message(R"({"type":"adaptive","budget_tokens":6})");
  EXPECT_EQ(adaptive.headers["x-millrace-ignored"], "thinking.budget_tokens");
}

TEST(ThoughtLimit, WhatDoesNotGoTogetherAndWhatDoesNothing) {
  Rig rig({}, thinking());
  const std::pair<std::string, std::string> refused[] = {
      {R"("thinking_budget":5,"reasoning_budget":6)", "reasoning_budget"},
      {R"("thinking_budget":5,"chat_template_kwargs":{"thinking_budget":6})", "chat_template_kwargs.thinking_budget"},
      {R"("thinking_budget":-2)", "thinking_budget"},
      {R"("thinking_budget":"5")", "thinking_budget"},
      {fmt::format(R"("thinking_budget":5,"prompt_logprobs":1,{})", kOpen), "prompt_logprobs"}};
  for (const auto& [fields, param] : refused) {
    const Response response = rig.post("/v1/chat/completions", body(fields));
    EXPECT_EQ(response.status, 400) << fields << response.body;
    EXPECT_EQ(text_of(at(response.json(), "error", "param")), param) << response.body;
  }
  Rig plain;  // its template shows no reasoning
  Response response = plain.post("/v1/chat/completions", body(R"("thinking_budget":5)"));
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers["x-millrace-ignored"], "thinking_budget");
}

std::vector<std::string> mixed() {
  std::vector<std::string> all;
  const std::string bounds[] = {R"("thinking_budget":3)", R"("thinking_budget":0)",
                                R"("thinking_budget":9,"guided_json":{"enum":["yes","no","perhaps"]})",
                                R"("thinking_budget":6,"guided_regex":"[a-z ]{3,30}")", R"("thinking_budget":1000)"};
  const std::string samplers[] = {R"("temperature":0)", R"("temperature":1,"top_k":0,"top_p":1,"min_p":0,"n":3)",
                                  R"("temperature":1.2,"top_p":0.8)", R"("mirostat":2,"n":2)",
                                  R"("typical_p":0.7,"repetition_penalty":1.2,"n":3,"logprobs":true)"};
  int seed = 1;
  for (const std::string& bound : bounds)
    for (const std::string& sampler : samplers)
      all.push_back(body(fmt::format("{},{},{}", bound, sampler, kOpen), ++seed, 44));
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

TEST(ThoughtLimit, AloneInACrowdPreemptedAndGuessedAheadAreTheSame) {
  const std::vector<std::string> bodies = mixed();
  std::vector<std::string> alone;
  {
    Rig rig({}, thinking());
    for (const std::string& one : bodies) alone.push_back(choices_of(rig.post("/v1/chat/completions", one)));
    EXPECT_EQ(together(rig, bodies), alone) << "in a crowd";
  }
  {
    Rig rig({}, thinking(16));  // of some 32 that are wanted
    // On a busy machine they may not have come together.
    for (int i = 0; i < 50 && (i == 0 || rig.metrics().preemptions == 0); ++i) {
      EXPECT_EQ(together(rig, bodies), alone) << "preempted";
    }
    EXPECT_GT(rig.metrics().preemptions, 0);
  }
  Rig rig({}, thinking(0, true));
  EXPECT_EQ(together(rig, bodies), alone) << "guessed ahead";
  EXPECT_GT(rig.metrics().accepted_drafts, 0);
}

}  // namespace
}  // namespace millrace
#endif
