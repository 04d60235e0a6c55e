// The smaller things OpenAI's clients and others ask of completions and chats: filling in the middle, the best of
// several answers, going on with a message. Against what the session gives for the same tokens.
#include <gtest/gtest.h>

#include "server/rig.h"
#include "session/chat_prompt.h"
#include "session/fill_prompt.h"
#include "tensor/gguf_writer.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using testing::at;
using testing::Response;
using testing::Rig;
using testing::text_of;

// The shipped model with three of its tokens named as those for filling in.
class FillingModel {
 public:
  static constexpr Token kPrefix = 300, kSuffix = 301, kMiddle = 302;

  FillingModel() : path_(std::filesystem::path(::testing::TempDir()) / fmt::format("filling-{}.gguf", ::getpid())) {
    const auto from =
        Checkpoint::open(std::filesystem::path(MILLRACE_SOURCE_DIR) / "models/stories-14m-q8_0.gguf").value();
    GgufWriter writer;
    for (const MetaEntry& entry : from.metadata().entries()) EXPECT_TRUE(writer.put(entry).ok());
    EXPECT_TRUE(writer.put("tokenizer.ggml.fim_pre_token_id", static_cast<uint32_t>(kPrefix)).ok());
    EXPECT_TRUE(writer.put("tokenizer.ggml.fim_suf_token_id", static_cast<uint32_t>(kSuffix)).ok());
    EXPECT_TRUE(writer.put("tokenizer.ggml.fim_mid_token_id", static_cast<uint32_t>(kMiddle)).ok());
    for (const StoredTensor& tensor : from.tensors())
      EXPECT_TRUE(writer.add(tensor.name, tensor.type, tensor.shape).ok());
    EXPECT_TRUE(writer.begin(path_).ok());
    for (const StoredTensor& tensor : from.tensors()) EXPECT_TRUE(writer.write(tensor.bytes).ok());
    EXPECT_TRUE(writer.finish().ok());
  }
  ~FillingModel() { std::filesystem::remove(path_); }
  FillingModel(const FillingModel&) = delete;
  FillingModel& operator=(const FillingModel&) = delete;

  std::shared_ptr<LoadedModel> load() const {
    LoadChoice choice{.path = path_};
    choice.cpu.threads = 2;
    return LoadedModel::load(choice).value();
  }
  ServedModel served() const {
    ServedModel served{.name = "stories", .fingerprint = "fp_test", .loaded = load(), .created = 1700000000};
    EngineOptions options;
    options.executor.context = 512;
    options.limits.step_tokens = 64;
    served.engine = Engine::create(served.loaded->model(), served.loaded->backend(), options).value();
    return served;
  }

 private:
  std::filesystem::path path_;
};

TEST(Extras, FillsInTheMiddleWithTheModelsOwnTokens) {
  const FillingModel filling;
  Rig rig({}, filling.served());
  const std::shared_ptr<LoadedModel> model = filling.load();
  const Tokenizer& tokenizer = *model->tokenizer();
  std::vector<Token> ids = {1, FillingModel::kPrefix};
  const std::vector<Token> before = tokenizer.encode("Once upon a").value();
  for (Token token : before) ids.push_back(token);
  ids.push_back(FillingModel::kSuffix);
  const std::vector<Token> after = tokenizer.encode(" was happy.").value();
  for (Token token : after) ids.push_back(token);
  ids.push_back(FillingModel::kMiddle);
  const Response filled =
      rig.post("/v1/completions", R"({"prompt":"Once upon a","suffix":" was happy.","max_tokens":12,"temperature":0})");
  const Response by_ids = rig.post(
      "/v1/completions", fmt::format(R"({{"prompt":[{}],"max_tokens":12,"temperature":0}})", fmt::join(ids, ",")));
  ASSERT_EQ(filled.status, 200) << filled.body;
  EXPECT_EQ(at(filled.json(), "choices", 0, "text"), at(by_ids.json(), "choices", 0, "text"));
  EXPECT_EQ(at(filled.json(), "usage", "prompt_tokens"), Json(ids.size()));
  // llama.cpp's and Ollama's ways to ask for the same.
  const Response infill = rig.post(
      "/infill", R"({"input_prefix":"Once upon a","input_suffix":" was happy.","n_predict":12,"temperature":0})");
  ASSERT_EQ(infill.status, 200) << infill.body;
  EXPECT_EQ(at(infill.json(), "content"), at(filled.json(), "choices", 0, "text"));
  const Response generated =
      rig.post("/api/generate", R"({"model":"stories","prompt":"Once upon a","suffix":" was happy.","stream":false,)"
                                R"("options":{"num_predict":12,"temperature":0}})");
  ASSERT_EQ(generated.status, 200) << generated.body;
  EXPECT_EQ(at(generated.json(), "response"), at(filled.json(), "choices", 0, "text"));
  const Response both = rig.post("/v1/completions", R"({"prompt":[1,2],"suffix":"x"})");
  EXPECT_EQ(both.status, 400);
  EXPECT_EQ(at(both.json(), "error", "param"), Json("suffix"));
}

TEST(Extras, AModelWithoutSuchTokensSaysSo) {
  Rig rig;
  const Response response = rig.post("/v1/completions", R"({"prompt":"a","suffix":"b"})");
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("not made to fill in the middle"), std::string::npos) << response.body;
}

// All answers with their log-probabilities, judged here.
TEST(Extras, TheBestAnswersAreTheLikeliestOfAll) {
  Rig rig;
  const std::string ask = R"("prompt":"Once upon a time","max_tokens":6,"seed":11,"temperature":1.5)";
  const Json all = rig.post("/v1/completions", fmt::format(R"({{{},"n":5,"logprobs":0}})", ask)).json();
  std::vector<std::pair<double, std::string>> ranked;
  for (const Json& choice : at(all, "choices").get_array()) {
    double sum = 0;
    const auto& list = at(choice, "logprobs", "token_logprobs").get_array();
    for (const Json& one : list) sum += one.to_number<double>();
    ranked.emplace_back(sum / static_cast<double>(list.size()), text_of(at(choice, "text")));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  const Json best = rig.post("/v1/completions", fmt::format(R"({{{},"n":2,"best_of":5}})", ask)).json();
  ASSERT_EQ(at(best, "choices").get_array().size(), 2U);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(text_of(at(best, "choices", i, "text")), ranked[static_cast<size_t>(i)].second);
    EXPECT_EQ(at(best, "choices", i, "index"), Json(i));
    EXPECT_EQ(find(at(best, "choices", i), "logprobs"), nullptr);
  }
  EXPECT_EQ(at(best, "usage", "completion_tokens"), Json(30));  // all were made
  EXPECT_EQ(rig.post("/v1/completions", fmt::format(R"({{{},"n":3,"best_of":2}})", ask)).status, 400);
  EXPECT_EQ(rig.post("/v1/completions", fmt::format(R"({{{},"best_of":2,"stream":true}})", ask)).status, 400);
  EXPECT_EQ(rig.post("/v1/completions", fmt::format(R"({{{},"best_of":33}})", ask)).status, 400);
}

TEST(Extras, AMessageOfTheAssistantIsContinued) {
  Rig rig;
  const std::string talk =
      R"("messages":[{"role":"user","content":"Tell me a story."},{"role":"assistant","content":"Once upon a "}])";
  const Json whole = rig.post("/apply-template", fmt::format(R"({{{},"continue_final_message":true}})", talk)).json();
  const std::string prompt = text_of(at(whole, "prompt"));
  EXPECT_TRUE(prompt.ends_with("Once upon a ")) << prompt;  // no end of a turn, no space lost
  const Json answer = rig.post("/v1/chat/completions", fmt::format(R"({{{},"continue_final_message":true,"max_tokens":9,
      "temperature":0,"add_generation_prompt":false}})",
                                                                   talk))
                          .json();
  const Json by_text =
      rig.post("/v1/completions", to_text(JsonObject{{"prompt", prompt}, {"max_tokens", 9}, {"temperature", 0}}))
          .json();
  EXPECT_EQ(at(answer, "choices", 0, "message", "content"), at(by_text, "choices", 0, "text"));
  for (
      const char* wrong :
      {R"({"messages":[{"role":"user","content":"x"}],"continue_final_message":true})",
       R"({"messages":[{"role":"assistant","content":"x"}],"continue_final_message":true,"add_generation_prompt":true})"}) {
    const Response response = rig.post("/v1/chat/completions", wrong);
    EXPECT_EQ(response.status, 400) << wrong;
    EXPECT_EQ(at(response.json(), "error", "param"), Json("continue_final_message"));
  }
}

// What the model said when it chose the tokens itself, it says again when they are given to it.
TEST(Extras, TokensOfAPromptAreScoredAsIfTheyWereChosen) {
  Rig rig;
  const Json made = rig.post("/v1/completions", R"({"prompt":[1,403,407,261,378],"max_tokens":8,"temperature":0,
      "ignore_eos":true,"logprobs":2,"return_token_ids":true})")
                        .json();
  std::vector<int64_t> ids = {1, 403, 407, 261, 378};
  for (const Json& id : at(made, "choices", 0, "token_ids").get_array()) ids.push_back(id.get_int64());
  const std::string ask =
      fmt::format(R"({{"prompt":[{}],"max_tokens":1,"temperature":0,"echo":true,"logprobs":2}})", fmt::join(ids, ","));
  const Response response = rig.post("/v1/completions", ask);
  ASSERT_EQ(response.status, 200) << response.body;
  const Json json = response.json();
  const Json& lists = at(json, "choices", 0, "logprobs");
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    EXPECT_EQ(at(lists, list).get_array().size(), ids.size() + 1) << list;
  EXPECT_TRUE(at(lists, "token_logprobs").get_array()[0].is_null());
  EXPECT_TRUE(at(lists, "top_logprobs").get_array()[0].is_null());
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(at(lists, "token_logprobs", i + 5), at(made, "choices", 0, "logprobs", "token_logprobs", i)) << i;
    EXPECT_EQ(at(lists, "top_logprobs", i + 5), at(made, "choices", 0, "logprobs", "top_logprobs", i)) << i;
    EXPECT_EQ(at(lists, "tokens", i + 5), at(made, "choices", 0, "logprobs", "tokens", i)) << i;
  }
  EXPECT_EQ(at(json, "usage", "prompt_tokens"), Json(ids.size()));
  EXPECT_EQ(at(json, "usage", "completion_tokens"), Json(1));
  // The answer after it is that of the same prompt without.
  const Json plain = rig.post("/v1/completions",
                              fmt::format(R"({{"prompt":[{}],"max_tokens":1,"temperature":0}})", fmt::join(ids, ",")))
                         .json();
  EXPECT_TRUE(text_of(at(json, "choices", 0, "text")).ends_with(text_of(at(plain, "choices", 0, "text"))));
  EXPECT_GT(text_of(at(json, "choices", 0, "text")).size(), text_of(at(plain, "choices", 0, "text")).size() + 20);

  const Json other = rig.post("/v1/completions", fmt::format(R"({{"prompt":[{}],"max_tokens":1,"temperature":0,
      "prompt_logprobs":1}})",
                                                             fmt::join(ids, ",")))
                         .json();
  const auto& scores = at(other, "choices", 0, "prompt_logprobs").get_array();
  ASSERT_EQ(scores.size(), ids.size());
  EXPECT_TRUE(scores[0].is_null());
  for (size_t i = 5; i < ids.size(); ++i) {
    const Json& one = at(scores[i], fmt::format("{}", ids[i]));
    EXPECT_EQ(at(one, "logprob"), at(lists, "token_logprobs", static_cast<int>(i)));
    EXPECT_EQ(at(one, "rank"), Json(1));  // they were chosen greedily
  }
  EXPECT_EQ(find(at(other, "choices", 0), "logprobs"), nullptr);
}

TEST(Extras, PromptsAreScoredAloneOrNotAtAll) {
  Rig rig;
  for (const char* rest : {R"("stream":true)", R"("n":2)", R"("json_schema":{})"}) {
    const Response response =
        rig.post("/v1/completions", fmt::format(R"({{"prompt":"a cat","prompt_logprobs":0,{}}})", rest));
    EXPECT_EQ(response.status, 400) << rest;
    EXPECT_EQ(at(response.json(), "error", "param"), Json("prompt_logprobs")) << rest;
  }
  const Response ended = rig.post("/v1/completions", R"({"prompt":[1,403,2,261],"echo":true,"logprobs":1})");
  EXPECT_EQ(ended.status, 400);
  EXPECT_NE(ended.body.find("token 2 of the prompt is 2"), std::string::npos) << ended.body;
}

TEST(Extras, OneModelIsFoundByItsName) {
  Rig rig;
  EXPECT_EQ(at(rig.get("/v1/models/stories").json(), "id"), Json("stories"));
  EXPECT_EQ(rig.get("/v1/models/nobody").status, 404);
}

}  // namespace
}  // namespace millrace
#endif
