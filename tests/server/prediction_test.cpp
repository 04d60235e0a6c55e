// Predicted answers: the client says what the answer will probably be. It changes no answer, is counted by what the
// answer turned out to be, and no prediction hurts anybody.
#include <gtest/gtest.h>

#include "server/rig.h"

namespace millrace {
namespace {

using testing::at;
using testing::guessing_model;
using testing::Rig;

#if MILLRACE_SESSION_TEXT

constexpr std::string_view kTalk = R"("messages":[{"role":"user","content":"Write a story about a fox."}])";

std::string ask(std::string_view prediction, std::string_view more = "") {
  std::string body = fmt::format(R"({{{},"max_tokens":60,"temperature":1,"seed":4{})", kTalk, more);
  if (!prediction.empty())
    body += fmt::format(R"(,"prediction":{{"type":"content","content":{}}})", to_text(Json(prediction)));
  return body + "}";
}

std::string content(const Json& answer) {
  return std::string(at(answer, "choices", 0, "message", "content").get_string());
}

TEST(Prediction, MakesTheSameAnswerInFewerSteps) {
  Rig rig({}, guessing_model());
  const Json plain = rig.post("/v1/chat/completions", ask("")).json();
  EXPECT_EQ(find(at(plain, "usage"), "completion_tokens_details"), nullptr);
  const int64_t steps = rig.metrics().steps;
  const std::string text = content(plain);
  const Json right = rig.post("/v1/chat/completions", ask(text)).json();
  EXPECT_EQ(content(right), text);
  EXPECT_LT(rig.metrics().steps - steps, steps / 2);
  const Json& details = at(right, "usage", "completion_tokens_details");
  const int64_t accepted = at(details, "accepted_prediction_tokens").get_int64();
  EXPECT_GE(accepted, 55);
  EXPECT_LE(at(details, "rejected_prediction_tokens").get_int64(), 3);
  const std::string page = rig.get("/metrics").body;
  EXPECT_NE(page.find("vllm:spec_decode_num_accepted_tokens_total{"), std::string::npos);
  EXPECT_NE(page.find("vllm:spec_decode_num_accepted_tokens_per_pos_total{model_name=\"stories\",position=\"0\"}"),
            std::string::npos);
}

TEST(Prediction, ThatIsWrongInPlacesIsCountedByWhatIsInTheAnswer) {
  Rig rig({}, guessing_model());
  const std::string text = content(rig.post("/v1/chat/completions", ask("")).json());
  const std::string middle = text.substr(0, 60) + " Something else entirely happened here. " + text.substr(90);
  const std::string never(1000, 'x');
  for (const auto& [prediction, least, most] : {std::tuple(middle, 20, 59), std::tuple(never, 0, 0)}) {
    for (const char* stream : {"", R"(,"n":2)"}) {
      const Json answer = rig.post("/v1/chat/completions", ask(prediction, stream)).json();
      EXPECT_EQ(content(answer), text);
      const Json& details = at(answer, "usage", "completion_tokens_details");
      const int64_t accepted = at(details, "accepted_prediction_tokens").get_int64();
      EXPECT_GE(accepted, least);
      EXPECT_LE(accepted, most * (*stream == 0 ? 1 : 2));
      EXPECT_GT(at(details, "rejected_prediction_tokens").get_int64(), 3);
    }
  }
}

TEST(Prediction, OfTheWrongShapeIsRefused) {
  Rig rig({}, guessing_model());
  for (const std::string_view bad :
       {R"("the fox")", R"({"type":"content"})", R"({"type":"guess","content":"x"})", R"({"content":"x"})",
        R"({"type":"content","content":7})", R"({"type":"content","content":[{"type":"image_url","text":"x"}]})"}) {
    const auto answer =
        rig.post("/v1/chat/completions", fmt::format(R"({{{},"max_tokens":2,"prediction":{}}})", kTalk, bad));
    EXPECT_EQ(answer.status, 400) << bad;
    EXPECT_NE(answer.body.find("prediction"), std::string::npos) << answer.body;
  }
  const auto parts =
      rig.post("/v1/chat/completions", fmt::format(R"({{{},"max_tokens":2,"prediction":{{"type":"content","content":)"
                                                   R"([{{"type":"text","text":"a"}},{{"type":"text","text":"b"}}]}}}})",
                                                   kTalk));
  EXPECT_EQ(parts.status, 200) << parts.body;
}

// A megabyte is more than an answer can be: a sentence, and everybody else is answered.
TEST(Prediction, OfAMegabyteIsHarmless) {
  Rig rig({}, guessing_model());
  std::string story;
  while (story.size() < 1 << 20) story += "Once upon a time there was a fox who liked to guess. ";
  const auto refused = rig.post("/v1/chat/completions", ask(story));
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("does not fit a context of 512 tokens"), std::string::npos) << refused.body;
  const auto taken = rig.post("/v1/chat/completions", ask(std::string_view(story).substr(0, 60'000)));
  EXPECT_EQ(taken.status, 200) << taken.body;
  EXPECT_EQ(content(taken.json()), content(rig.post("/v1/chat/completions", ask("")).json()));
}

#endif

}  // namespace
}  // namespace millrace
