// Answers in channels, as gpt-oss writes them: what comes of each, however it is cut.
#include <gtest/gtest.h>

#include "base/file.h"
#include "session/call_reader.h"

#if MILLRACE_SESSION_TEXT
namespace millrace {
namespace {

using Kind = AnswerPart::Kind;
using Parts = std::vector<AnswerPart>;

const CallFormat& channels() {
  static const CallFormat format = [] {
    const auto path = std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/session/data/calls/channels.jinja";
    auto made = ChatTemplate::from({{{"default", read_file(path).value()}}, {}});
    return find_calls(*made);
  }();
  return format;
}

Parts read(std::string_view text, bool thinking = false, bool continues = false) {
  const std::vector<Tool> tools = {{.name = "get_weather"}, {.name = "map.find-2"}};
  Parts whole;
  for (size_t cut : {size_t{100'000}, size_t{1}, size_t{7}}) {
    CallReader reader(channels(), tools, thinking, continues);
    Parts parts;
    for (size_t at = 0; at < text.size(); at += cut) reader.push(text.substr(at, cut), parts);
    reader.finish(parts);
    if (cut == 100'000) whole = parts;
    EXPECT_EQ(parts, whole) << "cut by " << cut << "\n" << text;
  }
  return whole;
}

TEST(Channels, AreFound) {
  const CallFormat& format = channels();
  ASSERT_EQ(format.style, CallFormat::Style::channels);
  EXPECT_EQ(format.begin, "<|channel|>commentary to=functions.");
  EXPECT_EQ(format.content_begin, "<|channel|>final<|message|>");
  EXPECT_EQ(format.think_begin, "<|channel|>analysis<|message|>");
  EXPECT_EQ(format.think_end, "<|end|><|start|>assistant");
  EXPECT_EQ(format.think_field, "thinking");
}

TEST(Channels, AreReasoningContentAndCalls) {
  EXPECT_EQ(read("<|channel|>analysis<|message|>Hm, 1 < 2.<|end|><|start|>assistant<|channel|>final<|message|>Hello."),
            (Parts{{Kind::reasoning, "Hm, 1 < 2."}, {Kind::content, "Hello."}}));
  const Parts call = {{Kind::call, "map.find-2"}, {Kind::arguments, R"({"a": "<|x"})"}, {Kind::ended, ""}};
  for (const char* head : {"<|channel|>commentary to=functions.map.find-2 <|constrain|>json<|message|>",
                           " to=functions.map.find-2<|channel|>commentary json<|message|>",
                           "<|channel|>analysis to=functions.map.find-2 code<|message|>"}) {
    EXPECT_EQ(read(std::string(head) + R"({"a": "<|x"})"), call) << head;
    EXPECT_EQ(read(std::string(head) + R"({"a": "<|x"}<|call|>)"), call) << head;
  }
  EXPECT_EQ(
      read("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
           "to=functions.get_weather <|constrain|>json<|message|>{}<|call|>"),
      (Parts{{Kind::content, "I look."}, {Kind::call, "get_weather"}, {Kind::arguments, "{}"}, {Kind::ended, ""}}));
  EXPECT_EQ(read("One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.", true),
            (Parts{{Kind::reasoning, "One.\n\nTwo."}}));
  EXPECT_EQ(read(" of it.", false, true), (Parts{{Kind::content, " of it."}}));
}

TEST(Channels, WhatIsWrittenWronglyIsContent) {
  EXPECT_EQ(read("<|channel|>commentary to=functions.unknown <|constrain|>json<|message|>{}<|call|>"),
            (Parts{{Kind::content, "commentary to=functions.unknown  json {}"}}));
  EXPECT_EQ(read("No head at all."), (Parts{{Kind::content, "No head at all."}}));
  const std::string long_text(2000, 'x');
  EXPECT_EQ(read(long_text + "<|message|>y"), (Parts{{Kind::content, long_text + "<|message|>y"}}));
  // Cut by a limit: as far as it came.
  EXPECT_EQ(read("<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"a\": 1"),
            (Parts{{Kind::call, "get_weather"}, {Kind::arguments, "{\"a\": 1"}}));
}

// Thousands of calls until the limit: each is told, and time grows with the bytes.
TEST(Channels, ThousandsOfCalls) {
  std::string text;
  const std::string one =
      "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"a\": 1}<|call|>";
  for (int i = 0; i < 5000; ++i) text += (i == 0 ? "" : "<|start|>assistant") + one;
  const Parts parts = read(text);
  EXPECT_EQ(parts.size(), 3U * 5000);
}

}  // namespace
}  // namespace millrace
#endif
