// Anthropic's Messages over a real connection: the same answers as a chat gets, in other words.
#include <gtest/gtest.h>

#include "server/anthropic/read_messages.h"
#include "server/rig.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using testing::at;
using testing::Client;
using testing::Response;
using testing::Rig;
using testing::text_of;

constexpr std::string_view kTalk = R"("messages":[{"role":"user","content":"Tell me a story."}])";
std::string talk(std::string_view rest) { return fmt::format("{{{},{}}}", kTalk, rest); }

std::string refusal(std::string_view body) {
  RequestBody asked;
  auto failure = read_messages(body, kMessagesBody, {}, asked);
  return failure ? failure->message : "";
}

struct StreamEvent {
  std::string name;
  Json data;
};
std::vector<StreamEvent> events_of(const Response& response) {
  std::vector<StreamEvent> list;
  std::string_view body = response.body;
  while (!body.empty()) {
    const size_t end = body.find("\n\n"), line = body.find('\n');
    EXPECT_TRUE(body.starts_with("event: ") && end != std::string_view::npos) << body;
    if (end == std::string_view::npos) break;
    EXPECT_EQ(body.substr(line + 1, 6), "data: ");
    list.push_back({std::string(body.substr(7, line - 7)), parse_json(body.substr(line + 7, end - line - 7)).value()});
    EXPECT_EQ(at(list.back().data, "type"), Json(list.back().name));
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

TEST(Anthropic, AMessageIsTheAnswerOfAChat) {
  Rig rig;
  const Response response = rig.post("/v1/messages?beta=true", talk(R"("max_tokens":20,"temperature":0)"));
  ASSERT_EQ(response.status, 200) << response.body;
  const Json json = response.json();
  EXPECT_EQ(at(json, "type"), Json("message"));
  EXPECT_EQ(at(json, "role"), Json("assistant"));
  EXPECT_EQ(at(json, "model"), Json("stories"));
  EXPECT_TRUE(text_of(at(json, "id")).starts_with("msg_"));
  EXPECT_EQ(at(json, "content").get_array().size(), 1U);
  EXPECT_EQ(text_of(at(json, "content", 0, "text")),
            chat_text(rig, R"([{"role":"user","content":"Tell me a story."}])", 20));
  EXPECT_EQ(at(json, "stop_reason"), Json("max_tokens"));
  EXPECT_TRUE(json.at("stop_sequence").is_null());
  EXPECT_EQ(at(json, "usage", "output_tokens"), Json(20));
}

TEST(Anthropic, TokensFoundInTheCacheAreCountedApart) {
  Rig rig;
  const std::string body = fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}}],"max_tokens":2}})",
                                       std::string(300, 'a') + " story");
  const Json first = rig.post("/v1/messages", body).json(), second = rig.post("/v1/messages", body).json();
  const Json counted =
      rig.post("/v1/messages/count_tokens",
               fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}}]}})", std::string(300, 'a') + " story"))
          .json();
  const int64_t all = at(counted, "input_tokens").get_int64();
  EXPECT_EQ(at(first, "usage", "input_tokens"), Json(all));
  EXPECT_GT(at(second, "usage", "cache_read_input_tokens").get_int64(), 0);
  EXPECT_EQ(
      at(second, "usage", "input_tokens").get_int64() + at(second, "usage", "cache_read_input_tokens").get_int64(),
      all);
}

TEST(Anthropic, AStreamHasItsEventsInOrder) {
  Rig rig;
  const Json whole = rig.post("/v1/messages", talk(R"("max_tokens":20,"temperature":0)")).json();
  const Response response = rig.post("/v1/messages", talk(R"("max_tokens":20,"temperature":0,"stream":true)"));
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream");
  const std::vector<StreamEvent> events = events_of(response);
  ASSERT_GE(events.size(), 7U);
  EXPECT_EQ(events[0].name, "message_start");
  EXPECT_EQ(at(events[0].data, "message", "role"), Json("assistant"));
  EXPECT_EQ(at(events[0].data, "message", "content"), Json(JsonArray()));
  const Json& begun = at(events[0].data, "message", "usage");
  EXPECT_EQ(at(begun, "input_tokens").get_int64() + at(begun, "cache_read_input_tokens").get_int64(),
            at(whole, "usage", "input_tokens").get_int64() + at(whole, "usage", "cache_read_input_tokens").get_int64());
  EXPECT_EQ(events[1].name, "ping");
  EXPECT_EQ(events[2].name, "content_block_start");
  EXPECT_EQ(at(events[2].data, "content_block", "type"), Json("text"));
  std::string text;
  for (size_t i = 3; i + 3 < events.size(); ++i) {
    EXPECT_EQ(events[i].name, "content_block_delta");
    EXPECT_EQ(at(events[i].data, "index"), Json(0));
    EXPECT_EQ(at(events[i].data, "delta", "type"), Json("text_delta"));
    text += text_of(at(events[i].data, "delta", "text"));
  }
  EXPECT_EQ(text, text_of(at(whole, "content", 0, "text")));
  EXPECT_EQ(events[events.size() - 3].name, "content_block_stop");
  const Json& last = events[events.size() - 2].data;
  EXPECT_EQ(at(last, "type"), Json("message_delta"));
  EXPECT_EQ(at(last, "delta", "stop_reason"), Json("max_tokens"));
  EXPECT_EQ(at(last, "usage", "output_tokens"), Json(20));
  EXPECT_EQ(events.back().name, "message_stop");
}

TEST(Anthropic, SaysWhichTextStoppedIt) {
  Rig rig;
  const std::string text = chat_text(rig, R"([{"role":"user","content":"Tell me a story."}])", 20);
  const std::string stop = text.substr(8, 5);
  const std::string body =
      to_text(JsonObject{{"messages", JsonArray{JsonObject{{"role", "user"}, {"content", "Tell me a story."}}}},
                         {"max_tokens", 20},
                         {"temperature", 0},
                         {"stop_sequences", JsonArray{"zzz", stop}}});
  const Json json = rig.post("/v1/messages", body).json();
  EXPECT_EQ(at(json, "stop_reason"), Json("stop_sequence"));
  EXPECT_EQ(at(json, "stop_sequence"), Json(stop));
  EXPECT_EQ(text_of(at(json, "content", 0, "text")), text.substr(0, text.find(stop)));
}

TEST(Anthropic, LongerThanTheContextIsAsLongAsItHasRoom) {
  Rig rig;
  const Response response = rig.post("/v1/messages", talk(R"("max_tokens":32000,"temperature":0)"));
  EXPECT_EQ(response.status, 200) << response.body;
}

TEST(Anthropic, WhatChangesFromRequestToRequestIsLeftOutOfThePrompt) {
  RequestBody asked;
  ASSERT_FALSE(read_messages(R"({"max_tokens":5,"system":[
      {"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.0; cch=a81f;"},
      {"type":"text","text":"You are a bard.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"Be brief."}],
      "messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
                  {"role":"user","content":"c"}]})",
                             kMessagesBody, {}, asked));
  ASSERT_EQ(asked.messages.size(), 2U);
  EXPECT_EQ(asked.messages[0].role, "system");
  EXPECT_EQ(asked.messages[0].content, "You are a bard.\nBe brief.");
  EXPECT_EQ(asked.messages[1].content, "a\nb\nc");
  EXPECT_TRUE(asked.ignored.contains("system.[].cache_control"));
  RequestBody plain;
  ASSERT_FALSE(read_messages(R"({"max_tokens":5,"system":"x-anthropic-billing-header: 1\nYou are a bard.",
      "messages":[{"role":"user","content":"c"}]})",
                             kMessagesBody, {}, plain));
  EXPECT_EQ(plain.messages[0].content, "You are a bard.");
}

TEST(Anthropic, ALastMessageOfTheAssistantIsContinued) {
  RequestBody asked;
  ASSERT_FALSE(read_messages(
      R"({"max_tokens":5,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"Once"}]})",
      kMessagesBody, {}, asked));
  EXPECT_TRUE(asked.chat_options.continue_last);
  RequestBody other;
  ASSERT_FALSE(
      read_messages(R"({"max_tokens":5,"messages":[{"role":"user","content":"a"}]})", kMessagesBody, {}, other));
  EXPECT_FALSE(other.chat_options.continue_last);
}

TEST(Anthropic, AnswersAreBoundToASchema) {
  Rig rig;
  const Response response = rig.post(
      "/v1/messages",
      talk(
          R"("max_tokens":60,"temperature":0,"output_config":{"format":{"type":"json_schema","schema":{"enum":["yes"]}}})"));
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(text_of(at(response.json(), "content", 0, "text")), "\"yes\"");
  EXPECT_EQ(at(response.json(), "stop_reason"), Json("end_turn"));
}

TEST(Anthropic, ToolsAndTheirResultsAreRead) {
  RequestBody asked;
  ASSERT_FALSE(read_messages(R"({"max_tokens":5,
      "tools":[{"name":"look","description":"Looks.","input_schema":{"type":"object"}},{"name":"run","strict":true},
               {"type":"web_search_20250305","name":"web_search"}],
      "tool_choice":{"type":"any","disable_parallel_tool_use":true},
      "messages":[{"role":"user","content":"x"},
                  {"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":""},
                    {"type":"text","text":"I look."},{"type":"tool_use","id":"t1","name":"look","input":{"at":1}}]},
                  {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1",
                    "content":[{"type":"text","text":"a cat"}]},{"type":"text","text":"And?"}]}]})",
                             kMessagesBody, {}, asked));
  ASSERT_TRUE(asked.tools);
  ASSERT_EQ(asked.tools->tools.size(), 2U);
  EXPECT_TRUE(asked.tools->required && asked.tools->single && asked.tools->tools[1].strict);
  EXPECT_EQ(asked.chat_options.tools.size(), 2U);
  EXPECT_TRUE(asked.ignored.contains("tools.[].type:web_search_20250305"));
  ASSERT_EQ(asked.messages.size(), 4U);
  EXPECT_EQ(asked.messages[1].reasoning, "Hm.");
  EXPECT_EQ(asked.messages[1].content, "I look.");
  EXPECT_EQ(to_text(asked.messages[1].tool_calls),
            R"([{"type":"function","function":{"name":"look","arguments":{"at":1}},"id":"t1"}])");
  EXPECT_EQ(asked.messages[2].role, "tool");
  EXPECT_EQ(asked.messages[2].content, "a cat");
  EXPECT_EQ(asked.messages[2].tool_call_id, "t1");
  EXPECT_EQ(asked.messages[2].name, "look");
  EXPECT_EQ(asked.messages[3].content, "And?");
  EXPECT_NE(refusal(talk(R"("max_tokens":5,"tools":[{"name":"a"}],"tool_choice":{"type":"tool","name":"b"})"))
                .find("not in 'tools'"),
            std::string::npos);
  EXPECT_NE(refusal(talk(R"("max_tokens":5,"tools":[{"name":"a"},{"name":"a"}])")).find("two tools"),
            std::string::npos);
  EXPECT_NE(refusal(talk(R"("max_tokens":5,"tool_choice":{"type":"any"})")).find("nothing in 'tools'"),
            std::string::npos);
}

TEST(Anthropic, WhatIsWrongIsSaid) {
  EXPECT_NE(refusal(R"({"messages":[{"role":"user","content":"x"}]})").find("'max_tokens' is missing"),
            std::string::npos);
  EXPECT_NE(refusal(talk(R"("max_tokens":5,"max_token":3)")).find("'max_tokens' is meant"), std::string::npos);
  EXPECT_NE(refusal(R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]})").find("'image'"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"text"}]}]})").find("is missing"),
            std::string::npos);
  EXPECT_EQ(refusal(talk(R"("max_tokens":5,"metadata":{"user_id":"x"},"unheard_of":1)")), "");
}

TEST(Anthropic, ErrorsAndKeysAreInItsWords) {
  ServerOptions options;
  ASSERT_TRUE(options.service.keys.add("me", "sk-0123456789abcdef").ok());
  Rig rig(std::move(options));
  const Response stranger = rig.post("/v1/messages", talk(R"("max_tokens":2)"));
  EXPECT_EQ(stranger.status, 401);
  EXPECT_EQ(at(stranger.json(), "type"), Json("error"));
  EXPECT_EQ(at(stranger.json(), "error", "type"), Json("authentication_error"));
  const std::string_view key = "x-api-key: sk-0123456789abcdef\r\nanthropic-version: 2023-06-01\r\n";
  EXPECT_EQ(rig.post("/v1/messages", talk(R"("max_tokens":2)"), key).status, 200);
  EXPECT_EQ(rig.post("/v1/messages", talk(R"("max_tokens":2)"), "Authorization: Bearer sk-0123456789abcdef\r\n").status,
            200);
  const Response nobody = rig.post("/v1/messages", talk(R"("max_tokens":2,"model":"claude")"), key);
  EXPECT_EQ(nobody.status, 404);
  EXPECT_EQ(at(nobody.json(), "error", "type"), Json("not_found_error"));
  const Response wrong = rig.post("/v1/messages", talk(R"("max_tokens":0)"), key);
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(at(wrong.json(), "error", "type"), Json("invalid_request_error"));
  EXPECT_EQ(rig.post("/v1/messages/count_tokens", "{}", key).status, 400);
}

TEST(Anthropic, WhileLoadingItIsOverloaded) {
  Rig rig({}, std::nullopt);
  const Response response = rig.post("/v1/messages", talk(R"("max_tokens":2)"));
  EXPECT_EQ(response.status, 529);
  EXPECT_EQ(at(response.json(), "error", "type"), Json("overloaded_error"));
  EXPECT_EQ(response.headers.count("retry-after"), 1U);
}

}  // namespace
}  // namespace millrace
#endif
