// Ollama's interface over a real connection: the same answers as a chat and a completion get, as lines of JSON.
#include <gtest/gtest.h>

#include "server/ollama/read_ollama.h"
#include "server/rig.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using testing::at;
using testing::Response;
using testing::Rig;
using testing::text_of;

constexpr std::string_view kTalk = R"("model":"stories","messages":[{"role":"user","content":"Tell me a story."}])";
std::string talk(std::string_view rest) { return fmt::format("{{{},{}}}", kTalk, rest); }

std::string refusal(std::string_view body, OllamaBody kind = kOllamaChat) {
  RequestBody asked;
  auto failure = read_ollama(body, kind, {}, asked);
  return failure ? failure->message : "";
}

std::vector<Json> lines_of(const Response& response) {
  std::vector<Json> lines;
  std::string_view body = response.body;
  while (!body.empty()) {
    const size_t end = body.find('\n');
    EXPECT_NE(end, std::string_view::npos) << body;
    if (end == std::string_view::npos) break;
    lines.push_back(parse_json(body.substr(0, end)).value());
    body.remove_prefix(end + 1);
  }
  return lines;
}

std::string chat_text(Rig& rig, int tokens) {
  const Json json = rig.post("/v1/chat/completions", fmt::format(R"({{"messages":[{{"role":"user","content":
      "Tell me a story."}}],"max_tokens":{},"temperature":0}})",
                                                                 tokens))
                        .json();
  return text_of(at(json, "choices", 0, "message", "content"));
}

TEST(Ollama, AChatIsAnsweredInLines) {
  Rig rig;
  const Response response =
      rig.post("/api/chat", talk(R"("options":{"num_predict":20,"temperature":0,"num_ctx":99},"keep_alive":"5m")"));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers.at("content-type"), "application/x-ndjson");
  EXPECT_NE(response.headers.at("x-millrace-ignored").find("options.num_ctx"), std::string::npos);
  const std::vector<Json> lines = lines_of(response);
  ASSERT_GE(lines.size(), 2U);  // how many there are depends on how fast they are written
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(at(lines[i], "model"), Json("stories"));
    EXPECT_EQ(text_of(at(lines[i], "created_at")).size(), 20U);
    EXPECT_EQ(at(lines[i], "message", "role"), Json("assistant"));
    EXPECT_EQ(at(lines[i], "done"), Json(i + 1 == lines.size()));
    text += text_of(at(lines[i], "message", "content"));
  }
  EXPECT_EQ(text, chat_text(rig, 20));
  const Json& last = lines.back();
  EXPECT_EQ(at(last, "done_reason"), Json("length"));
  EXPECT_EQ(at(last, "eval_count"), Json(20));
  EXPECT_GT(at(last, "prompt_eval_count").get_int64(), 0);
  EXPECT_EQ(at(last, "total_duration").get_int64() / 1000,
            (at(last, "prompt_eval_duration").get_int64() + at(last, "eval_duration").get_int64()) / 1000);
}

TEST(Ollama, AWholeAnswerIsOneObject) {
  Rig rig;
  const Response response =
      rig.post("/api/chat", talk(R"("stream":false,"options":{"num_predict":20,"temperature":0})"));
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
  EXPECT_EQ(text_of(at(response.json(), "message", "content")), chat_text(rig, 20));
  EXPECT_EQ(at(response.json(), "done"), Json(true));
}

TEST(Ollama, APromptGoesThroughTheTemplateUnlessItIsRaw) {
  Rig rig;
  const std::string rest = R"("stream":false,"options":{"num_predict":12,"temperature":0}})";
  const Json through =
      rig.post("/api/generate", R"({"model":"stories:latest","prompt":"Tell me a story.",)" + rest).json();
  EXPECT_EQ(text_of(at(through, "response")), chat_text(rig, 12));
  const Json raw = rig.post("/api/generate", R"({"raw":true,"prompt":"Once upon a time",)" + rest).json();
  const Json plain =
      rig.post("/v1/completions", R"({"prompt":"Once upon a time","max_tokens":12,"temperature":0})").json();
  EXPECT_EQ(at(raw, "response"), at(plain, "choices", 0, "text"));
}

TEST(Ollama, AskedForNothingItSaysThatTheModelIsThere) {
  Rig rig;
  for (const char* path : {"/api/generate", "/api/chat"}) {
    const Json json = rig.post(path, R"({"model":"stories","keep_alive":0})").json();
    EXPECT_EQ(at(json, "done_reason"), Json("load")) << path;
    EXPECT_EQ(at(json, "done"), Json(true));
  }
  EXPECT_EQ(rig.post("/api/generate", R"({"model":"nobody"})").status, 404);
  EXPECT_TRUE(testing::eventually([&] { return rig.quiet(); }));
}

TEST(Ollama, AFormatBindsTheAnswer) {
  Rig rig;
  const Json schema =
      rig.post("/api/chat", talk(R"("stream":false,"format":{"enum":["yes"]},"options":{"temperature":0})")).json();
  EXPECT_EQ(text_of(at(schema, "message", "content")), "\"yes\"");
  EXPECT_EQ(at(schema, "done_reason"), Json("stop"));
  RequestBody any;
  ASSERT_FALSE(read_ollama(talk(R"("format":"json")"), kOllamaChat, {}, any));
  ASSERT_TRUE(any.bound);
  EXPECT_EQ(any.bound->source.kind, GrammarKind::json_object);
  RequestBody none;
  ASSERT_FALSE(read_ollama(talk(R"("format":"")"), kOllamaChat, {}, none));
  EXPECT_FALSE(none.bound);
}

TEST(Ollama, OptionsAreTheSamplingOfARequest) {
  RequestBody asked;
  ASSERT_FALSE(read_ollama(talk(R"("think":"high","options":{"temperature":0.5,"top_k":7,"repeat_penalty":1.2,"seed":9,
      "num_predict":-1,"stop":["a","b"],"mirostat":2})"),
                           kOllamaChat, {}, asked));
  const Sampling& s = asked.request.sampling;
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.top_k, 7);
  EXPECT_EQ(s.repetition, 1.2);
  EXPECT_EQ(s.seed, 9U);
  EXPECT_EQ(s.mirostat, 2);
  EXPECT_EQ(asked.max_tokens, 0);
  EXPECT_EQ(asked.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(asked.chat_options.variables.at("reasoning_effort"), Json("high"));
  EXPECT_TRUE(asked.stream);
}

TEST(Ollama, ToolsAndTheirAnswersAreRead) {
  RequestBody asked;
  ASSERT_FALSE(read_ollama(R"({"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}],
      "messages":[{"role":"user","content":"x"},
                  {"role":"assistant","content":"","thinking":"Hm.","tool_calls":[{"function":{"name":"look","arguments":{"at":1}}}]},
                  {"role":"tool","tool_name":"look","content":"a cat"}]})",
                           kOllamaChat, {}, asked));
  ASSERT_TRUE(asked.tools);
  EXPECT_FALSE(asked.tools->binds());
  EXPECT_EQ(asked.chat_options.tools.size(), 1U);
  EXPECT_EQ(asked.messages[1].reasoning, "Hm.");
  EXPECT_EQ(to_text(asked.messages[1].tool_calls),
            R"([{"type":"function","function":{"name":"look","arguments":{"at":1}}}])");
  EXPECT_EQ(asked.messages[2].name, "look");
}

TEST(Ollama, WhatIsWrongIsSaid) {
  EXPECT_NE(refusal(talk(R"("options":{"temperatur":1})")).find("'temperature' is meant"), std::string::npos);
  EXPECT_NE(refusal(talk(R"("options":{"temperature":-1})")).find("between 0 and 100"), std::string::npos);
  EXPECT_NE(refusal(talk(R"("format":7)")).find("'format' must be"), std::string::npos);
  EXPECT_NE(refusal(talk(R"("think":"hard")")).find("'think' must be"), std::string::npos);
  EXPECT_NE(refusal(R"({"messages":[{"role":"user","content":"x","images":["abc"]}]})").find("not built"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"prompt":"x","context":[1,2]})", kOllamaGenerate).find("not built"), std::string::npos);
  EXPECT_NE(refusal(R"({"prompt":"x","raw":true,"system":"y"})", kOllamaGenerate).find("'system' goes"),
            std::string::npos);
  Rig rig;
  const Response nobody = rig.post("/api/chat", R"({"model":"nobody","messages":[{"role":"user","content":"x"}]})");
  EXPECT_EQ(nobody.status, 404);
  EXPECT_TRUE(at(nobody.json(), "error").is_string());
  const Response pull = rig.post("/api/pull", R"({"model":"x"})");
  EXPECT_EQ(pull.status, 501);
  EXPECT_TRUE(at(pull.json(), "error").is_string());
  const Response embed = rig.post("/api/embed", R"({"model":"stories","input":"x"})");
  EXPECT_EQ(embed.status, 400);
  EXPECT_TRUE(at(embed.json(), "error").is_string());
}

TEST(Ollama, TellsWhatThereIs) {
  Rig rig;
  const Json tags = rig.get("/api/tags").json();
  EXPECT_EQ(at(tags, "models", 0, "name"), Json("stories"));
  EXPECT_GT(at(tags, "models", 0, "size").get_int64(), 1'000'000);
  EXPECT_EQ(at(tags, "models", 0, "details", "family"), Json("llama"));
  EXPECT_EQ(at(tags, "models", 0, "details", "quantization_level"), Json("Q8_0"));
  EXPECT_EQ(at(rig.get("/api/ps").json(), "models", 0, "context_length"), Json(512));
  const Json show = rig.post("/api/show", R"({"model":"stories:latest"})").json();
  EXPECT_EQ(at(show, "model_info", "llama.context_length"), Json(512));
  EXPECT_EQ(at(show, "capabilities", 0), Json("completion"));
  EXPECT_EQ(rig.post("/api/show", R"({"name":"nobody"})").status, 404);
  EXPECT_TRUE(at(rig.get("/api/version").json(), "version").is_string());
}

TEST(Ollama, LogProbabilitiesAreThoseOfAChat) {
  Rig rig;
  const Json json = rig.post("/api/chat", talk(R"("stream":false,"logprobs":true,"top_logprobs":2,
      "options":{"num_predict":4,"temperature":0})"))
                        .json();
  const Json chat = rig.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Tell me a story."}],
      "max_tokens":4,"temperature":0,"logprobs":true,"top_logprobs":2})")
                        .json();
  EXPECT_EQ(at(json, "logprobs"), at(chat, "choices", 0, "logprobs", "content"));
}

}  // namespace
}  // namespace millrace
#endif
