// What the server answers, over a real connection, against what the session gives for the same tokens.
#include <gtest/gtest.h>

#include "server/openapi.h"
#include "server/rig.h"
#include "session/answer.h"
#include "session/chat_prompt.h"
#include "session/generator.h"

namespace millrace {
namespace {

using testing::at;
using testing::Client;
using testing::Response;
using testing::Rig;
using testing::text_of;

constexpr std::string_view kIds = "[1,403,407,261,378]";

// The greedy continuation by another way: alone, without threads or server.
std::vector<Token> greedy(std::vector<Token> prompt, int32_t count) {
  auto model = testing::shipped_model();
  const auto generator = Generator::create(model->model(), model->backend(), {.context = 512}).value();
  GenerateOptions options{.max_tokens = count};
  options.sampling.temperature = 0;
  options.ignore_end = true;
  options.end_tokens.assign(model->end_tokens().begin(), model->end_tokens().end());
  auto result = generator->generate(prompt, options, [](const GeneratedToken&) { return Generator::Reply::more; });
  return result.value().tokens;
}

TEST(Answers, TokenIdsGoInAndComeOutAsAlone) {
  Rig rig;
  const Response response = rig.post(
      "/v1/completions",
      fmt::format(R"({{"prompt":{},"max_tokens":24,"temperature":0,"ignore_eos":true,"return_token_ids":true}})",
                  kIds));
  ASSERT_EQ(response.status, 200) << response.body;
  const Json json = response.json();
  std::vector<Token> tokens;
  for (const Json& id : at(json, "choices", 0, "token_ids").get_array())
    tokens.push_back(static_cast<Token>(id.get_int64()));
  EXPECT_EQ(tokens, greedy({1, 403, 407, 261, 378}, 24));
  EXPECT_EQ(at(json, "usage", "prompt_tokens"), Json(5));
  EXPECT_EQ(at(json, "usage", "completion_tokens"), Json(24));
  EXPECT_EQ(at(json, "choices", 0, "finish_reason"), Json("length"));
  EXPECT_EQ(at(json, "object"), Json("text_completion"));
}

TEST(Answers, HealthReadyModelsVersion) {
  Rig rig;
  EXPECT_EQ(rig.get("/health").status, 200);
  EXPECT_EQ(rig.get("/ready").status, 200);
  EXPECT_EQ(at(rig.get("/v1/models").json(), "data", 0, "id"), Json("stories"));
  EXPECT_EQ(rig.get("/version").status, 200);
  const Json api = rig.get("/openapi.json").json();
  EXPECT_EQ(to_text(api), to_text(openapi_json("unknown")));
  for (const auto& table : route_tables())
    for (const Route& route : table) EXPECT_NE(find(at(api, "paths"), route.path), nullptr) << route.path;
  EXPECT_EQ(rig.get("/nowhere").status, 404);
  EXPECT_EQ(rig.get("/v1/completions").status, 405);
  const Response head = rig.fetch("HEAD", "/health");
  EXPECT_EQ(head.status, 200);
  EXPECT_TRUE(head.body.empty());
}

TEST(Answers, AnEngineThatStandsStillIsNotHealthy) {
  ServerOptions options;
  options.service.stuck_seconds = -1;  // as if it had stood for longer than it may
  Rig rig(std::move(options));
  const Response response = rig.get("/health");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(at(response.json(), "status"), Json("stuck"));
}

// One that ends what is open when it comes to fail, as an engine without a process does.
class EngineThatFails : public EnginePort {
 public:
  explicit EngineThatFails(int32_t vocab) {
    facts_.limits.context = 512;
    facts_.vocab = vocab;
  }
  RequestId submit(Request, Listener listener, bool) override {
    std::lock_guard lock(mutex_);
    open_.push_back(std::move(listener));
    return std::ssize(open_);
  }
  void fail(const char* why) {
    std::vector<Listener> open;
    {
      std::lock_guard lock(mutex_);
      why_ = error(Code::not_found, "{}", why);
      open.swap(open_);
    }
    Event last{.request = 1, .finish = Finish::failed};
    last.error = why_;
    for (const Listener& listener : open) listener({&last, 1});
    if (told_) told_();
  }
  bool has_open() const {
    std::lock_guard lock(mutex_);
    return !open_.empty();
  }
  std::optional<Error> failing() const override {
    std::lock_guard lock(mutex_);
    return why_;
  }
  void cancel(RequestId, int) override {}
  void when_told(std::function<void()> told) override { told_ = std::move(told); }
  const EngineFacts& facts() const override { return facts_; }
  EngineSnapshot snapshot() const override { return {}; }
  std::vector<PageState> watch_pages() override { return {}; }

 private:
  EngineFacts facts_;
  std::function<void()> told_;
  mutable std::mutex mutex_;
  std::vector<Listener> open_;
  std::optional<Error> why_;
};

TEST(Answers, AnEngineThatCannotBeHadIsToldEverywhere) {
  ServedModel served = testing::served_model();
  auto engine = std::make_shared<EngineThatFails>(served.loaded->vocab());
  served.engine = engine;
  Rig rig({}, std::move(served));
  EXPECT_EQ(rig.get("/ready").status, 200);
  constexpr const char* kAsk = R"({"prompt":[1,403],"max_tokens":4})";
  Client open(rig.port());
  open.ask("POST", "/v1/completions", kAsk);
  ASSERT_TRUE(testing::eventually([&] { return engine->has_open(); }));
  engine->fail("the file is gone");
  for (const Response& response : {open.answer(), rig.post("/v1/completions", kAsk), rig.get("/ready")}) {
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(at(response.json(), "error", "message"), Json("the file is gone"));
    EXPECT_EQ(at(response.json(), "error", "code"), Json("engine_unavailable"));
  }
  const Response health = rig.get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(at(health.json(), "status"), Json("failing"));
  EXPECT_EQ(at(health.json(), "message"), Json("the file is gone"));
  EXPECT_EQ(rig.get("/v1/models").status, 200);  // needs no engine
}

TEST(Answers, WhileLoadingEverybodyIsToldToWait) {
  Rig rig({}, std::nullopt);
  EXPECT_EQ(rig.get("/health").status, 200);
  EXPECT_EQ(rig.get("/ready").status, 503);
  const Response response = rig.post("/v1/completions", R"({"prompt":[1]})");
  EXPECT_EQ(response.status, 503);
  EXPECT_TRUE(response.headers.contains("retry-after"));
  EXPECT_EQ(at(response.json(), "error", "code"), Json("model_loading"));
  EXPECT_EQ(rig.get("/metrics").status, 200);
  rig.server().service().serve(testing::served_model());
  EXPECT_EQ(rig.post("/v1/completions", R"({"prompt":[1],"max_tokens":1})").status, 200);
}

// All events of a stream together are the whole answer, in the order clients rely on.
TEST(Answers, AStreamIsTheWholeAnswerInParts) {
  Rig rig;
  const std::string ask = fmt::format(
      R"("prompt":{},"max_tokens":16,"temperature":0,"n":2,"logprobs":2,"ignore_eos":true,"return_token_ids":true)",
      kIds);
  const Json whole = rig.post("/v1/completions", "{" + ask + "}").json();
  const Response stream =
      rig.post("/v1/completions", "{" + ask + R"(,"stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream");
  EXPECT_TRUE(stream.complete);
  const std::vector<std::string> events = stream.events();
  ASSERT_GE(events.size(), 3U);
  EXPECT_EQ(events.back(), "[DONE]");
  std::map<int64_t, std::string> text, ids;
  std::map<int64_t, int> ends;
  std::string id;
  Json created;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json event = parse_json(events[i]).value();
    if (i == 0) id = text_of(at(event, "id")), created = at(event, "created");
    EXPECT_EQ(text_of(at(event, "id")), id);
    if (i + 2 == events.size()) {
      EXPECT_TRUE(at(event, "choices").get_array().empty());
      EXPECT_EQ(at(event, "usage", "completion_tokens"), Json(32));
      for (const char* count : {"prompt_tokens", "completion_tokens", "total_tokens"})
        EXPECT_EQ(at(event, "usage", count), at(whole, "usage", count));
      continue;
    }
    EXPECT_TRUE(event.at("usage").is_null());  // there, but only the last one has counts
    EXPECT_EQ(at(event, "created"), created);
    const int64_t index = at(event, "choices", 0, "index").get_int64();
    text[index] += text_of(at(event, "choices", 0, "text"));
    if (const Json* list = find(at(event, "choices", 0), "token_ids"))
      for (const Json& one : list->get_array()) ids[index] += to_text(one) + ",";
    ends[index] += find(at(event, "choices", 0), "finish_reason") != nullptr;
  }
  for (int choice = 0; choice < 2; ++choice) {
    EXPECT_EQ(text[choice], text_of(at(whole, "choices", choice, "text")));
    EXPECT_EQ(ends[choice], 1);
    std::string expected;
    for (const Json& one : at(whole, "choices", choice, "token_ids").get_array()) expected += to_text(one) + ",";
    EXPECT_EQ(ids[choice], expected);
  }
}

TEST(Answers, ACachedPromptIsCounted) {
  Rig rig;
  std::string ids = "1";
  for (int i = 0; i < 99; ++i) ids += fmt::format(",{}", 300 + i);
  const std::string ask = fmt::format(R"({{"prompt":[{}],"max_tokens":2,"temperature":0}})", ids);
  const Json first = rig.post("/v1/completions", ask).json(), second = rig.post("/v1/completions", ask).json();
  EXPECT_EQ(at(first, "usage", "prompt_tokens_details", "cached_tokens"), Json(0));
  EXPECT_GE(at(second, "usage", "prompt_tokens_details", "cached_tokens").get_int64(), 64);
  // Another salt shares nothing.
  const Json third = rig.post("/v1/completions", ask.substr(0, ask.size() - 1) + R"(,"cache_salt":"x"})").json();
  EXPECT_EQ(at(third, "usage", "prompt_tokens_details", "cached_tokens"), Json(0));
}

TEST(Answers, MistakesAreAnsweredAndNameTheField) {
  Rig rig;
  struct Case {
    std::string body, param, code;
    int status;
  };
  const Case cases[] = {
      {R"({"prompt":[1],"temperature":-1})", "temperature", "invalid_value", 400},
      {R"({"prompt":[1],"max_tokens":0})", "max_tokens", "invalid_value", 400},
      {R"({"prompt":[1],"max_tokens":512})", "prompt", "context_length_exceeded", 400},
      {R"({"prompt":[1000000]})", "prompt", "invalid_value", 400},
      {R"({"prompt":[]})", "prompt", "invalid_value", 400},
      {R"({"prompt":[1],"model":"other"})", "model", "model_not_found", 404},
      {R"({"prompt":[1],"logit_bias":{"999999":1}})", "", "invalid_value", 400},
      {R"({"prompt":[1],"stop_token_ids":[999999]})", "stop_token_ids", "invalid_value", 400},
      {R"({"prompt":[1],"response_format":{"type":"json"}})", "response_format.type", "invalid_value", 400},
      {R"({"prompt":[1])", "", "invalid_json", 400},
  };
  for (const Case& one : cases) {
    for (std::string_view stream : {"", "s"}) {
      std::string body = one.body;
      if (!stream.empty() && body.ends_with('}')) body.insert(body.size() - 1, R"(,"stream":true)");
      const Response response = rig.post("/v1/completions", body);
      EXPECT_EQ(response.status, one.status) << body << response.body;
      const Json json = response.json();
      const Json* param = find(at(json, "error"), "param");
      EXPECT_EQ(param == nullptr ? "" : text_of(*param), one.param) << body;
      EXPECT_EQ(text_of(at(json, "error", "code")), one.code) << body << response.body;
    }
  }
  EXPECT_TRUE(testing::eventually([&] { return rig.quiet(); }));
}

#if MILLRACE_SESSION_TEXT

constexpr std::string_view kTalk = R"("messages":[{"role":"user","content":"Tell me about a cat."}],"temperature":0)";

TEST(Answers, AChatIsTheTemplatesPromptContinued) {
  Rig rig;
  const Json json =
      rig.post("/v1/chat/completions", fmt::format(R"({{{},"max_tokens":20,"return_token_ids":true}})", kTalk)).json();
  auto model = testing::shipped_model();
  const std::vector<Message> messages = {{"user", "Tell me about a cat."}};
  auto prompt = chat_prompt(*model, messages).value();
  EXPECT_EQ(at(json, "usage", "prompt_tokens"), Json(prompt.tokens.size()));
  std::vector<Token> tokens;
  for (const Json& id : at(json, "choices", 0, "token_ids").get_array())
    tokens.push_back(static_cast<Token>(id.get_int64()));
  std::vector<Token> expected = greedy(prompt.tokens, static_cast<int32_t>(tokens.size()));
  EXPECT_EQ(tokens, expected);
  EXPECT_EQ(text_of(at(json, "choices", 0, "message", "content")),
            model->tokenizer()->decode(tokens, {.skip_special = true}));
  EXPECT_EQ(at(json, "object"), Json("chat.completion"));
  EXPECT_TRUE(text_of(at(json, "id")).starts_with("chatcmpl-"));
}

TEST(Answers, AChatStreamBeginsWithTheRole) {
  Rig rig;
  const Json whole = rig.post("/v1/chat/completions", fmt::format(R"({{{},"max_tokens":20}})", kTalk)).json();
  const auto events =
      rig.post("/v1/chat/completions", fmt::format(R"({{{},"max_tokens":20,"stream":true}})", kTalk)).events();
  ASSERT_GE(events.size(), 3U);
  EXPECT_EQ(at(parse_json(events[0]).value(), "choices", 0, "delta", "role"), Json("assistant"));
  std::string text;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json event = parse_json(events[i]).value();
    if (const Json* content = find(at(event, "choices", 0, "delta"), "content")) text += text_of(*content);
    EXPECT_EQ(at(event, "object"), Json("chat.completion.chunk"));
  }
  EXPECT_EQ(text, text_of(at(whole, "choices", 0, "message", "content")));
}

// The stop string is not part of the answer, and the engine stops too.
TEST(Answers, AStopStringEndsTheAnswerAndTheWork) {
  Rig rig;
  const std::string ask = R"("prompt":"Once upon a time","temperature":0,"ignore_eos":true)";
  const std::string free =
      text_of(at(rig.post("/v1/completions", "{" + ask + R"(,"max_tokens":40})").json(), "choices", 0, "text"));
  const std::string stop = free.substr(free.size() / 2, 5);
  const Json pieces = rig.post("/tokenize", fmt::format(R"({{"content":"{}","with_pieces":true}})", stop)).json();
  for (const Json& token : at(pieces, "tokens").get_array())
    EXPECT_EQ(text_of(at(token, "piece")).find(stop), std::string::npos) << "it lies within one token";
  const std::string expected = free.substr(0, free.find(stop));
  for (std::string_view stream : {"false", "true"}) {
    const Response response =
        rig.post("/v1/completions",
                 fmt::format(R"({{{},"max_tokens":400,"n":2,"stop":["{}","zzzz"],"stream":{}}})", ask, stop, stream));
    ASSERT_EQ(response.status, 200) << response.body;
    if (stream == "false") {
      EXPECT_EQ(text_of(at(response.json(), "choices", 1, "text")), expected);
      EXPECT_EQ(at(response.json(), "choices", 1, "finish_reason"), Json("stop"));
    } else {
      std::string text;
      for (const std::string& event : response.events()) {
        if (event == "[DONE]") continue;
        const Json json = parse_json(event).value();
        if (at(json, "choices", 0, "index") == Json(0)) text += text_of(at(json, "choices", 0, "text"));
      }
      EXPECT_EQ(text, expected);
    }
  }
  EXPECT_TRUE(testing::eventually([&] { return rig.quiet(); }));
  EXPECT_LT(rig.metrics().tokens_out, 600);  // far from 4 * 400
}

TEST(Answers, EchoPutsThePromptInFront) {
  Rig rig;
  const Json json =
      rig.post("/v1/completions", R"({"prompt":["The cat","A dog"],"echo":true,"max_tokens":4,"temperature":0})")
          .json();
  EXPECT_TRUE(text_of(at(json, "choices", 0, "text")).starts_with("The cat"));
  EXPECT_TRUE(text_of(at(json, "choices", 1, "text")).starts_with("A dog"));
}

TEST(Answers, LogprobsAreThoseOfTheChosenToken) {
  Rig rig;
  const Json json =
      rig.post("/v1/chat/completions", fmt::format(R"({{{},"max_tokens":8,"logprobs":true,"top_logprobs":3}})", kTalk))
          .json();
  std::string joined;
  for (const Json& one : at(json, "choices", 0, "logprobs", "content").get_array()) {
    const auto& top = at(one, "top_logprobs").get_array();
    ASSERT_EQ(top.size(), 3U);
    EXPECT_EQ(text_of(at(one, "token")), text_of(at(top[0], "token")));  // greedy takes the likeliest
    EXPECT_EQ(at(one, "logprob"), at(top[0], "logprob"));
    for (const Json& byte : at(one, "bytes").get_array()) joined += static_cast<char>(byte.get_int64());
  }
  EXPECT_NE(joined.find(text_of(at(json, "choices", 0, "message", "content"))), std::string::npos) << joined;
}

TEST(Answers, TokenizeAndBack) {
  Rig rig;
  const Json tokens = rig.post("/tokenize", R"({"content":"Once upon a time","add_special":false})").json();
  const Response back = rig.post("/detokenize", fmt::format(R"({{"tokens":{}}})", to_text(at(tokens, "tokens"))));
  EXPECT_NE(text_of(at(back.json(), "content")).find("Once upon a time"), std::string::npos);
  const Json pieces = rig.post("/tokenize", R"({"prompt":"a","with_pieces":true})").json();
  EXPECT_TRUE(at(pieces, "tokens", 0, "id").is_int64());
  const Response prompt = rig.post("/apply-template", R"({"messages":[{"role":"user","content":"hello there"}]})");
  EXPECT_NE(text_of(at(prompt.json(), "prompt")).find("hello there"), std::string::npos);
  EXPECT_EQ(rig.post("/tokenize", "{}").status, 400);
  EXPECT_EQ(rig.post("/detokenize", R"({"tokens":"x"})").status, 400);
}

#endif

}  // namespace
}  // namespace millrace
