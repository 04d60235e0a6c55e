// llama.cpp's own interface over a real connection: the same answers as a completion gets.
#include <gtest/gtest.h>

#include "server/llama_cpp/read_llama.h"
#include "server/rig.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using testing::at;
using testing::Response;
using testing::Rig;
using testing::text_of;

std::string refusal(std::string_view body, LlamaBody kind = kLlamaCompletion) {
  RequestBody asked;
  auto failure = read_llama(body, kind, {}, asked);
  return failure ? failure->message : "";
}

TEST(LlamaCpp, ACompletionIsTheSameText) {
  Rig rig;
  const Json plain =
      rig.post("/v1/completions", R"({"prompt":"Once upon a time","max_tokens":12,"temperature":0,"logprobs":2,
      "return_token_ids":true})")
          .json();
  const Json json = rig.post("/completion", R"({"prompt":"Once upon a time","n_predict":12,"temperature":0,"n_probs":2,
      "return_tokens":true,"cache_prompt":true,"id_slot":-1})")
                        .json();
  EXPECT_EQ(at(json, "content"), at(plain, "choices", 0, "text"));
  EXPECT_EQ(at(json, "tokens"), at(plain, "choices", 0, "token_ids"));
  EXPECT_EQ(at(json, "stop"), Json(true));
  EXPECT_EQ(at(json, "stop_type"), Json("limit"));
  EXPECT_EQ(at(json, "tokens_predicted"), Json(12));
  EXPECT_EQ(at(json, "tokens_evaluated"), at(plain, "usage", "prompt_tokens"));
  const auto& probabilities = at(json, "completion_probabilities").get_array();
  ASSERT_EQ(probabilities.size(), 12U);
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(at(json, "completion_probabilities", i, "id"), at(json, "tokens", i));
    EXPECT_EQ(at(json, "completion_probabilities", i, "logprob"),
              at(plain, "choices", 0, "logprobs", "token_logprobs", i));
    EXPECT_EQ(at(json, "completion_probabilities", i, "top_logprobs").get_array().size(), 2U);
  }
  EXPECT_EQ(at(json, "timings", "predicted_n"), Json(12));
  EXPECT_EQ(
      at(rig.post("/completions", R"({"prompt":"Once upon a time","n_predict":12,"temperature":0})").json(), "content"),
      at(json, "content"));
}

TEST(LlamaCpp, AStreamEndsWithTheCounts) {
  Rig rig;
  const Response response = rig.post(
      "/completion", R"({"prompt":"Once upon a time","n_predict":40,"temperature":0,"stream":true,"stop":["."]})");
  const std::vector<std::string> events = response.events();
  ASSERT_GE(events.size(), 2U);
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    const Json event = parse_json(events[i]).value();
    text += text_of(at(event, "content"));
    EXPECT_EQ(at(event, "stop"), Json(i + 1 == events.size()));
  }
  const Json last = parse_json(events.back()).value();
  EXPECT_EQ(at(last, "stop_type"), Json("word"));
  EXPECT_EQ(at(last, "stopping_word"), Json("."));
  EXPECT_EQ(text.find('.'), std::string::npos);
  EXPECT_FALSE(text.empty());
}

TEST(LlamaCpp, GrammarsAndSchemasBindTheAnswer) {
  Rig rig;
  EXPECT_EQ(at(rig.post("/completion", R"({"prompt":"x","grammar":"root ::= \"yes\""})").json(), "content"),
            Json("yes"));
  EXPECT_EQ(
      at(rig.post("/completion", R"({"prompt":"x","json_schema":{"enum":["no"]},"grammar":""})").json(), "content"),
      Json("\"no\""));
}

TEST(LlamaCpp, FilesAndWhatStandsBeforeAreOneText) {
  RequestBody asked;
  ASSERT_FALSE(read_llama(R"({"input_prefix":"int f() {","input_suffix":"}","prompt":" return",
      "input_extra":[{"filename":"a.h","text":"int g();"},{"text":"int h();"}],"n_predict":-1})",
                          kLlamaInfill, {}, asked));
  EXPECT_EQ(std::get<std::string>(asked.prompts.at(0)), "a.h\nint g();\nint h();\nint f() { return");
  EXPECT_EQ(asked.suffix, "}");
  EXPECT_EQ(asked.max_tokens, 0);
}

TEST(LlamaCpp, WhatIsWrongIsSaid) {
  EXPECT_NE(refusal(R"({"prompt":["a","b"]})").find("one is answered at a time"), std::string::npos);
  EXPECT_NE(refusal(R"({"prompt":"x","samplers":["temperature"]})").find("another order"), std::string::npos);
  EXPECT_EQ(refusal(R"({"prompt":"x","samplers":["penalties","dry","top_n_sigma","top_k","typ_p","top_p","min_p","xtc",
      "temperature"]})"),
            "");
  EXPECT_NE(refusal(R"({"prompt":"x","json_schema":{},"grammar":"root ::= \"a\""})").find("both say"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"prompt":"x","n_predct":3})").find("'n_predict' is meant"), std::string::npos);
  EXPECT_NE(refusal("{}").find("'prompt' is missing"), std::string::npos);
  Rig rig;
  const Response infill = rig.post("/infill", R"({"input_prefix":"a","input_suffix":"b"})");
  EXPECT_EQ(infill.status, 400);
  EXPECT_NE(infill.body.find("not made to fill in the middle"), std::string::npos);
}

}  // namespace
}  // namespace millrace
#endif
