// Answers that are kept: gone on from by their ids, fetched, forgotten, pushed out for want of room, and nobody else's.
#include <gtest/gtest.h>

#include "base/file.h"
#include "server/responses/read_response.h"
#include "server/scripted.h"
#include "server/stored_answers.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using testing::at;
using testing::Response;
using testing::Rig;
using testing::text_of;

StoredAnswer answer_of(size_t bytes) {
  StoredAnswer answer;
  Message message;
  message.role = "user";
  message.content = std::string(bytes, 'x');
  answer.messages.push_back(message);
  answer.body = "{}";
  return answer;
}

TEST(StoredAnswers, AreBoundedInBytesAndNobodyPushesOutAnother) {
  StoredAnswers store(100'000);
  store.put("small", "a", answer_of(1000));
  for (int i = 0; i < 200; ++i) store.put("large", fmt::format("{}", i), answer_of(10'000));
  EXPECT_LE(store.counters().bytes, 100'000);
  EXPECT_GT(store.counters().pushed_out, 180);
  EXPECT_NE(store.find("small", "a"), nullptr);
  EXPECT_NE(store.find("large", "199"), nullptr);
  EXPECT_EQ(store.find("large", "0"), nullptr);
  EXPECT_EQ(store.find("small", "199"), nullptr);
  store.put("small", "huge", answer_of(200'000));  // it would push out all
  EXPECT_EQ(store.find("small", "huge"), nullptr);
  EXPECT_TRUE(store.erase("small", "a"));
  EXPECT_FALSE(store.erase("small", "a"));
  StoredAnswers none(0);
  none.put("", "a", answer_of(1));
  EXPECT_FALSE(none.keeps());
  EXPECT_EQ(none.find("", "a"), nullptr);
}

TEST(StoredAnswers, InstructionsAreNotTakenOver) {
  RequestBody first, second;
  ASSERT_FALSE(read_response(R"({"instructions":"Be brief.","input":[{"role":"developer","content":"Rhyme."},
      {"role":"user","content":"Hi."}]})",
                             {}, first));
  EXPECT_TRUE(first.keep);
  StoredAnswers store(1 << 20);
  std::vector<Message> kept = StoredAnswers::kept_of(first);
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].content, "Rhyme.");
  store.put("t", "resp_1", {kept, "{}"});
  ASSERT_FALSE(
      read_response(R"({"instructions":"Be loud.","previous_response_id":"resp_1","input":"Again."})", {}, second));
  ASSERT_FALSE(store.go_on("t", second));
  ASSERT_EQ(second.messages.size(), 3U);
  EXPECT_EQ(second.messages[0].content, "Be loud.\n\nRhyme.");
  EXPECT_EQ(second.messages[1].content, "Hi.");
  EXPECT_EQ(second.messages[2].content, "Again.");
  const auto refused = store.go_on("other", second);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ(refused->code, "previous_response_not_found");
}

TEST(StoredAnswers, AConversationGoesOnByIds) {
  Rig rig;
  const std::string sampling = R"("max_output_tokens":12,"temperature":0)";
  const Json first = rig.post("/v1/responses", fmt::format(R"({{"input":"Tell me a story.",{}}})", sampling)).json();
  const std::string id = text_of(at(first, "id")), said = text_of(at(first, "output", 0, "content", 0, "text"));
  EXPECT_EQ(at(first, "store"), Json(true));
  for (const char* stream : {"false", "true"}) {
    const Response second = rig.post(
        "/v1/responses",
        fmt::format(R"({{"input":"And then?","previous_response_id":"{}","stream":{},{}}})", id, stream, sampling));
    ASSERT_EQ(second.status, 200) << second.body;
    const Json chat =
        rig.post(
               "/v1/chat/completions",
               to_text(JsonObject{{"max_tokens", 12},
                                  {"temperature", 0},
                                  {"messages", JsonArray{JsonObject{{"role", "user"}, {"content", "Tell me a story."}},
                                                         JsonObject{{"role", "assistant"}, {"content", said}},
                                                         JsonObject{{"role", "user"}, {"content", "And then?"}}}}}))
            .json();
    std::string text;
    if (std::string_view(stream) == "false") {
      text = text_of(at(second.json(), "output", 0, "content", 0, "text"));
      EXPECT_EQ(text_of(at(second.json(), "previous_response_id")), id);
    } else {
      const size_t last = second.body.rfind("data: ");
      const Json event = parse_json(second.body.substr(last + 6, second.body.find('\n', last) - last - 6)).value();
      text = text_of(at(event, "response", "output", 0, "content", 0, "text"));
      const std::string streamed = text_of(at(event, "response", "id"));
      EXPECT_EQ(rig.get("/v1/responses/" + streamed).json(), at(event, "response"));
    }
    EXPECT_EQ(text, text_of(at(chat, "choices", 0, "message", "content")));
  }
  EXPECT_EQ(rig.get("/v1/responses/" + id).json(), first);
  const Json gone = rig.fetch("DELETE", "/v1/responses/" + id, "").json();
  EXPECT_EQ(at(gone, "deleted"), Json(true));
  EXPECT_EQ(rig.get("/v1/responses/" + id).status, 404);
  EXPECT_EQ(rig.fetch("DELETE", "/v1/responses/" + id, "").status, 404);
  const Response refused = rig.post("/v1/responses", fmt::format(R"({{"input":"x","previous_response_id":"{}"}})", id));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(at(refused.json(), "error", "code"), Json("previous_response_not_found"));
}

TEST(StoredAnswers, WhatIsNotToBeKeptIsNot) {
  Rig rig;
  const Json json =
      rig.post("/v1/responses", R"({"input":"Hi.","store":false,"max_output_tokens":4,"temperature":0})").json();
  EXPECT_EQ(at(json, "store"), Json(false));
  EXPECT_EQ(rig.get("/v1/responses/" + text_of(at(json, "id"))).status, 404);
  EXPECT_NE(rig.get("/metrics").body.find("millrace_stored_responses 0"), std::string::npos);
}

// What a call gave may come alone: the call, with its name, is in what was kept.
TEST(StoredAnswers, ResultsFindTheirCalls) {
  StoredAnswers store(1 << 20);
  Message call;
  call.role = "assistant";
  call.tool_calls.push_back(JsonObject{{"id", "c1"}, {"function", JsonObject{{"name", "look"}, {"arguments", "{}"}}}});
  store.put("", "resp_1", {{call}, "{}"});
  RequestBody asked;
  ASSERT_FALSE(read_response(R"({"previous_response_id":"resp_1",
      "input":[{"type":"function_call_output","call_id":"c1","output":"a cat"}]})",
                             {}, asked));
  ASSERT_FALSE(store.go_on("", asked));
  ASSERT_EQ(asked.messages.size(), 2U);
  EXPECT_EQ(asked.messages[1].name, "look");
}

}  // namespace
}  // namespace millrace
#endif
