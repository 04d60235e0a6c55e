// OpenAI's Responses over a real connection: the same answers as a chat gets, as items.
#include <gtest/gtest.h>

#include "server/responses/read_response.h"
#include "server/rig.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using testing::at;
using testing::Response;
using testing::Rig;
using testing::text_of;

std::string refusal(std::string_view body) {
  RequestBody asked;
  auto failure = read_response(body, {}, asked);
  return failure ? failure->message : "";
}

std::vector<Json> events_of(const Response& response) {
  std::vector<Json> list;
  std::string_view body = response.body;
  while (!body.empty()) {
    const size_t end = body.find("\n\n"), line = body.find('\n');
    EXPECT_TRUE(body.starts_with("event: ") && end != std::string_view::npos) << body;
    if (end == std::string_view::npos) break;
    list.push_back(parse_json(body.substr(line + 7, end - line - 7)).value());
    EXPECT_EQ(text_of(at(list.back(), "type")), body.substr(7, line - 7));
    EXPECT_EQ(at(list.back(), "sequence_number"), Json(list.size() - 1));
    body.remove_prefix(end + 2);
  }
  return list;
}

std::string chat_text(Rig& rig, std::string_view messages, int tokens) {
  const Json json = rig.post("/v1/chat/completions",
                             fmt::format(R"({{"messages":{},"max_tokens":{},"temperature":0}})", messages, tokens))
                        .json();
  return text_of(at(json, "choices", 0, "message", "content"));
}

TEST(Responses, AnAnswerIsThatOfAChat) {
  Rig rig;
  const Response response =
      rig.post("/v1/responses", R"({"input":"Tell me a story.","max_output_tokens":20,"temperature":0,"store":true})");
  ASSERT_EQ(response.status, 200) << response.body;
  const Json json = response.json();
  EXPECT_EQ(at(json, "object"), Json("response"));
  EXPECT_EQ(at(json, "status"), Json("incomplete"));
  EXPECT_EQ(at(json, "incomplete_details", "reason"), Json("max_output_tokens"));
  EXPECT_EQ(at(json, "output").get_array().size(), 1U);
  EXPECT_EQ(at(json, "output", 0, "type"), Json("message"));
  EXPECT_EQ(at(json, "output", 0, "content", 0, "type"), Json("output_text"));
  EXPECT_EQ(text_of(at(json, "output", 0, "content", 0, "text")),
            chat_text(rig, R"([{"role":"user","content":"Tell me a story."}])", 20));
  EXPECT_EQ(at(json, "usage", "output_tokens"), Json(20));
  EXPECT_FALSE(response.headers.contains("x-millrace-ignored"));
}

TEST(Responses, ItemsAreAConversation) {
  Rig rig;
  const Json json = rig.post("/v1/responses", R"({"instructions":"Be brief.","max_output_tokens":12,"temperature":0,
      "input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi."}]},
               {"type":"reasoning","id":"rs_1","summary":[]},
               {"type":"message","role":"assistant","id":"msg_1","status":"completed",
                "content":[{"type":"output_text","text":"Hello.","annotations":[]}]},
               {"role":"user","content":"Tell me a story."}]})")
                        .json();
  EXPECT_EQ(text_of(at(json, "output", 0, "content", 0, "text")),
            chat_text(rig, R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi."},
      {"role":"assistant","content":"Hello."},{"role":"user","content":"Tell me a story."}])",
                      12));
}

TEST(Responses, AStreamTellsOfItsItems) {
  Rig rig;
  const std::string ask = R"({"input":"Tell me a story.","max_output_tokens":20,"temperature":0)";
  const Json whole = rig.post("/v1/responses", ask + "}").json();
  const std::vector<Json> events = events_of(rig.post("/v1/responses", ask + R"(,"stream":true})"));
  ASSERT_GE(events.size(), 9U);
  auto type = [&](size_t i) { return text_of(at(events[i], "type")); };
  EXPECT_EQ(type(0), "response.created");
  EXPECT_EQ(at(events[0], "response", "status"), Json("in_progress"));
  EXPECT_EQ(type(1), "response.in_progress");
  EXPECT_EQ(type(2), "response.output_item.added");
  EXPECT_EQ(type(3), "response.content_part.added");
  const size_t last = events.size() - 1;
  std::string text;
  for (size_t i = 4; i + 4 <= last; ++i) {
    EXPECT_EQ(type(i), "response.output_text.delta");
    EXPECT_EQ(at(events[i], "item_id"), at(events[2], "item", "id"));
    text += text_of(at(events[i], "delta"));
  }
  const std::string expected = text_of(at(whole, "output", 0, "content", 0, "text"));
  EXPECT_EQ(text, expected);
  EXPECT_EQ(type(last - 3), "response.output_text.done");
  EXPECT_EQ(text_of(at(events[last - 3], "text")), expected);
  EXPECT_EQ(type(last - 2), "response.content_part.done");
  EXPECT_EQ(type(last - 1), "response.output_item.done");
  EXPECT_EQ(type(last), "response.incomplete");
  EXPECT_EQ(at(events[last], "response", "output", 0), at(events[last - 1], "item"));
  EXPECT_EQ(at(events[last], "response", "id"), at(events[0], "response", "id"));
  EXPECT_EQ(at(events[last], "response", "usage", "output_tokens"), Json(20));
}

TEST(Responses, AFormatBindsTheAnswer) {
  Rig rig;
  const Json json = rig.post("/v1/responses", R"({"input":"x","temperature":0,
      "text":{"format":{"type":"json_schema","name":"a","schema":{"enum":["yes"]},"strict":true}}})")
                        .json();
  EXPECT_EQ(text_of(at(json, "output", 0, "content", 0, "text")), "\"yes\"");
  EXPECT_EQ(at(json, "status"), Json("completed"));
  const std::vector<Json> events = events_of(rig.post("/v1/responses", R"({"input":"x","temperature":0,"stream":true,
      "text":{"format":{"type":"json_schema","name":"a","schema":{"enum":["yes"]}}}})"));
  EXPECT_EQ(at(events.back(), "type"), Json("response.completed"));
}

TEST(Responses, CallsAndWhatTheyGaveAreRead) {
  RequestBody asked;
  ASSERT_FALSE(read_response(R"({"parallel_tool_calls":false,"tool_choice":{"type":"function","name":"look"},
      "tools":[{"type":"function","name":"look","parameters":{"type":"object"},"strict":true},{"type":"web_search"},
               {"type":"function","name":"run"},{"type":"custom","name":"patch","format":{"type":"grammar"}}],
      "input":[{"role":"user","content":"x"},
               {"type":"reasoning","id":"r","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]},
               {"type":"function_call","call_id":"c1","name":"look","arguments":"{\"at\":1}","id":"fc_1"},
               {"type":"function_call","call_id":"c2","name":"run","arguments":""},
               {"type":"function_call_output","call_id":"c1","output":"a cat"},
               {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"done"}]}]})",
                             {}, asked));
  ASSERT_TRUE(asked.tools);
  ASSERT_EQ(asked.tools->tools.size(), 1U);
  EXPECT_TRUE(asked.tools->required && asked.tools->single && asked.tools->tools[0].strict);
  EXPECT_TRUE(asked.ignored.contains("tools.[].type:web_search") && asked.ignored.contains("tools.[].type:custom"));
  ASSERT_EQ(asked.messages.size(), 4U);
  EXPECT_EQ(asked.messages[1].reasoning, "Hm.");
  EXPECT_EQ(asked.messages[1].tool_calls.size(), 2U);
  EXPECT_EQ(asked.messages[2].name, "look");
  EXPECT_EQ(asked.messages[3].content, "done");
}

TEST(Responses, WhatIsWrongIsSaid) {
  EXPECT_NE(refusal("{}").find("'input' is missing"), std::string::npos);
  EXPECT_NE(refusal(R"({"input":"x","conversation":"conv_1"})").find("not built"), std::string::npos);
  EXPECT_NE(refusal(R"({"input":"x","background":true})").find("not built"), std::string::npos);
  EXPECT_EQ(refusal(R"({"input":"x","background":false,"previous_response_id":null})"), "");
  EXPECT_NE(refusal(R"({"input":"x","max_output_token":5})").find("'max_output_tokens' is meant"), std::string::npos);
  EXPECT_NE(
      refusal(R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]})").find("input_image"),
      std::string::npos);
  EXPECT_NE(refusal(R"({"input":[{"content":"x"}]})").find("'input.[0].role' is missing"), std::string::npos);
  EXPECT_NE(refusal(R"({"input":"x","text":{"format":{"type":"json_schema","name":"a"}}})").find("schema' is missing"),
            std::string::npos);
  Rig rig;
  EXPECT_EQ(rig.post("/v1/responses", R"({"input":"x","model":"nobody"})").status, 404);
}

}  // namespace
}  // namespace millrace
#endif
