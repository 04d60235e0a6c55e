// Reasoning, text and calls as the interfaces beside OpenAI's chats tell of them, whole and in pieces. However an
// answer is cut, what a client puts together is the same.
#include <gtest/gtest.h>

#include "server/anthropic/writing.h"
#include "server/ollama/writing.h"
#include "server/responses/writing.h"
#include "server/rig.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using testing::at;
using testing::text_of;
using Kind = AnswerPart::Kind;

const std::vector<AnswerPart> kAnswer = {
    {Kind::reasoning, "Hm, a \"cat\"."},
    {Kind::content, "I look."},
    {Kind::call, "look", "call_1"},
    {Kind::arguments, R"({"at":"the \"cat\"")"},
    {Kind::arguments, "}"},
    {Kind::ended, ""},
    {Kind::call, "run", "call_2"},
    {Kind::ended, ""},
    {Kind::content, "Done."},
};

// The same answer in pieces of so many bytes.
std::vector<AnswerPart> pieces(size_t size) {
  std::vector<AnswerPart> list;
  for (const AnswerPart& part : kAnswer) {
    if (part.kind == Kind::call || part.kind == Kind::ended) {
      list.push_back(part);
      continue;
    }
    for (size_t i = 0; i < part.text.size(); i += size) list.push_back({part.kind, part.text.substr(i, size)});
  }
  return list;
}

std::vector<Json> events_of(std::string_view body) {
  std::vector<Json> list;
  while (!body.empty()) {
    const size_t end = body.find("\n\n"), line = body.find('\n');
    list.push_back(parse_json(body.substr(line + 7, end - line - 7)).value());
    body.remove_prefix(end + 2);
  }
  return list;
}

TEST(CallsWritten, AnthropicsPartsArePutTogetherFromAnyPieces) {
  const Json whole = parse_json("[" + content_json(kAnswer) + "]").value();
  EXPECT_EQ(to_text(whole),
            R"([{"type":"thinking","thinking":"Hm, a \"cat\".","signature":""},{"type":"text","text":"I look."},)"
            R"({"type":"tool_use","id":"call_1","name":"look","input":{"at":"the \"cat\""}},)"
            R"({"type":"tool_use","id":"call_2","name":"run","input":{}},{"type":"text","text":"Done."}])");
  for (size_t size : {size_t{1}, size_t{3}, size_t{100}}) {
    MessageStream stream;
    std::string out;
    for (const AnswerPart& part : pieces(size)) append_message_parts(out, stream, std::span(&part, 1));
    JsonArray built;
    std::string input;
    bool open = false;
    for (const Json& event : events_of(out)) {
      const std::string type = text_of(at(event, "type"));
      if (type == "content_block_start") {
        EXPECT_FALSE(std::exchange(open, true));
        EXPECT_EQ(at(event, "index"), Json(built.size()));
        built.push_back(at(event, "content_block"));
        input.clear();
      } else if (type == "content_block_delta") {
        ASSERT_TRUE(open);
        const std::string kind = text_of(at(event, "delta", "type"));
        const char* field = kind == "text_delta" ? "text" : kind == "thinking_delta" ? "thinking" : "partial_json";
        const std::string delta = text_of(at(event, "delta", field));
        JsonObject& part = built.back().get_object();
        if (kind == "input_json_delta") {
          input += delta;
        } else {
          part[field] = std::string(part[field].get_string()) + delta;
        }
      } else {
        EXPECT_EQ(type, "content_block_stop");
        EXPECT_TRUE(std::exchange(open, false));
        if (!input.empty()) built.back().get_object()["input"] = parse_json(input).value();
      }
    }
    EXPECT_TRUE(open);  // the last text is ended by the end of the answer
    EXPECT_EQ(to_text(built), to_text(whole)) << size;
  }
}

TEST(CallsWritten, ResponsesItemsArePutTogetherFromAnyPieces) {
  ResponseStream all;
  take_parts(nullptr, all, kAnswer);
  end_parts(nullptr, all, false);
  const Json whole = parse_json("[" + all.items + "]").value();
  ASSERT_EQ(whole.get_array().size(), 5U);
  EXPECT_EQ(at(whole, 0, "content", 0, "text"), Json("Hm, a \"cat\"."));
  EXPECT_EQ(at(whole, 2, "type"), Json("function_call"));
  EXPECT_EQ(at(whole, 2, "arguments"), Json(R"({"at":"the \"cat\""})"));
  EXPECT_EQ(at(whole, 2, "call_id"), Json("call_1"));
  EXPECT_EQ(at(whole, 3, "name"), Json("run"));
  for (size_t size : {size_t{1}, size_t{3}, size_t{100}}) {
    ResponseStream stream;
    std::string out;
    for (const AnswerPart& part : pieces(size)) take_parts(&out, stream, std::span(&part, 1));
    end_parts(&out, stream, false);
    std::map<int64_t, std::string> texts;
    int64_t done = 0;
    for (const Json& event : events_of(out)) {
      const std::string type = text_of(at(event, "type"));
      const int64_t index = at(event, "output_index").get_int64();
      if (type.ends_with(".delta")) texts[index] += text_of(at(event, "delta"));
      if (type.ends_with("text.done")) {
        EXPECT_EQ(text_of(at(event, "text")), texts[index]);
      }
      if (type.ends_with("arguments.done")) {
        EXPECT_EQ(text_of(at(event, "arguments")), texts[index]);
      }
      if (type != "response.output_item.done") continue;
      EXPECT_EQ(index, done++);
      JsonObject item = at(event, "item").get_object(), expected = at(whole, static_cast<int>(index)).get_object();
      item.erase("id"), expected.erase("id");  // new ones each time
      EXPECT_EQ(to_text(item), to_text(expected));
    }
    EXPECT_EQ(done, 5);
  }
}

TEST(CallsWritten, OllamasCallsComeWhole) {
  for (size_t size : {size_t{1}, size_t{100}}) {
    OllamaStream stream;
    std::string content, thinking, calls;
    for (const AnswerPart& part : pieces(size)) {
      const OllamaTexts texts = ollama_texts(std::span(&part, 1), false, stream);
      content += texts.content;
      thinking += texts.thinking;
      if (!texts.calls.empty()) calls += (calls.empty() ? "" : ",") + texts.calls;
    }
    EXPECT_EQ(content, "I look.Done.");
    EXPECT_EQ(thinking, "Hm, a \"cat\".");
    EXPECT_EQ(calls, R"({"id":"call_1","function":{"name":"look","arguments":{"at":"the \"cat\""}}},)"
                     R"({"id":"call_2","function":{"name":"run","arguments":{}}})");
  }
}

TEST(CallsWritten, ArgumentsThatWereCutOffAreNotLost) {
  const std::vector<AnswerPart> cut = {{Kind::call, "look", "call_1"}, {Kind::arguments, R"({"at":"th)"}};
  EXPECT_NE(content_json(cut).find(R"("input":{"unfinished":"{\"at\":\"th"})"), std::string::npos) << content_json(cut);
  OllamaStream stream;
  EXPECT_NE(ollama_texts(cut, true, stream).calls.find(R"("arguments":{"unfinished")"), std::string::npos);
}

}  // namespace
}  // namespace millrace
#endif
