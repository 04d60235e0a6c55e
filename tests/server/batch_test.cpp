// Lines of a batch and rows of its answers: what is asked, what is refused under which id, and what a second run makes
// of the rows of the first.
#include <gtest/gtest.h>

#include "base/json.h"
#include "server/batch_file.h"

namespace millrace {
namespace {

constexpr std::string_view kGood = R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":[1]}})";

TEST(BatchLines, AValidIdIsKeptWhateverElseIsWrong) {
  for (std::string_view text :
       {R"({"custom_id":"a","method":"GET","url":"/v1/completions","body":{}})",
        R"({"custom_id":"a","method":5,"url":"/v1/completions","body":{}})",
        R"({"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{}})", R"({"custom_id":"a","method":"POST"})",
        R"({"custom_id":"a","method":"POST","url":"/v1/completions"})",
        R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":[]})",
        R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"stream":true}})"}) {
    const BatchLine line = read_batch_line(text, 7);
    EXPECT_EQ(line.id, "a") << text;
    EXPECT_TRUE(line.wrong.starts_with("line 7: ")) << text;
  }
  for (std::string_view text : {"no json", "", "{}", "[]", R"({"custom_id":5})", R"({"custom_id":null})"}) {
    const BatchLine line = read_batch_line(text, 7);
    EXPECT_EQ(line.id, "line-7") << text;
    EXPECT_FALSE(line.wrong.empty()) << text;
  }
}

// Also where a line is no JSON, or too deep or too long to be read as such.
TEST(BatchLines, AValidIdIsFoundInWhatCannotBeRead) {
  const std::string deep(300, '['),
      head = R"({"body":{"custom_id":"no","x":["custom_id",":\""]},"custom_id": "a\u0062\"",)";
  for (const std::string& text : {head + R"("body":)" + deep, head + R"("url":)", head + "\"x\":\"never ends",
                                  head + R"("body":")" + std::string(kLongestBatchLine, 'x') + "\"}"}) {
    const BatchLine line = read_batch_line(text, 7);
    EXPECT_EQ(line.id, "ab\"") << text.substr(0, 200);
    EXPECT_FALSE(line.wrong.empty());
  }
  for (const std::string text : {R"({"x":"custom_id","a")", R"({"custom_id":["a")", R"({"custom_id":"a)",
                                 R"({"custom_id":{"a":1},)", R"({"custom_id")"})
    EXPECT_EQ(read_batch_line(text, 7).id, "line-7") << text;
}

// A body too deep or too large for the server is answered by the server, under the line's own id.
TEST(BatchLines, ABodyIsJudgedByTheServer) {
  std::string deep = R"({"custom_id":"a","url":"/v1/completions","body":{"x":)";
  deep += std::string(100, '[') + std::string(100, ']') + "}}";
  const BatchLine line = read_batch_line(deep, 1);
  EXPECT_EQ(line.wrong, "");
  EXPECT_EQ(line.id, "a");
  EXPECT_EQ(line.request.method, "POST");
  EXPECT_EQ(line.request.path, "/v1/completions");
}

TEST(BatchRecord, ADuplicatesErrorDoesNotHideTheAnswerToCome) {
  using Next = BatchRecord::Next;
  BatchRecord first;
  BatchLine one = read_batch_line(kGood, 1), two = read_batch_line(kGood, 2);
  EXPECT_EQ(first.next(one, 1), Next::ask);
  EXPECT_EQ(first.next(two, 2), Next::refuse);
  // The error row was written, then the program was killed.
  BatchRecord second;
  ASSERT_TRUE(second.add_row(batch_error_row(two.id, two.wrong)).ok());
  EXPECT_EQ(second.answered(), 0U);
  one = read_batch_line(kGood, 1), two = read_batch_line(kGood, 2);
  EXPECT_EQ(second.next(one, 1), Next::ask);
  EXPECT_EQ(second.next(two, 2), Next::skip);
  // And a third time, when both rows are there.
  BatchRecord third;
  ASSERT_TRUE(third.add_row(batch_error_row(two.id, two.wrong)).ok());
  ASSERT_TRUE(third.add_row(batch_answer_row("a", {.body = "{}"}, 1)).ok());
  one = read_batch_line(kGood, 1), two = read_batch_line(kGood, 2);
  EXPECT_EQ(third.next(one, 1), Next::skip);
  EXPECT_EQ(third.next(two, 2), Next::skip);
}

TEST(BatchRecord, AnAnswersRowNamesWhatWasIgnored) {
  HttpAnswer answer{.body = "{}"};
  EXPECT_EQ(batch_answer_row("a", answer, 1).find("ignored"), std::string::npos);
  answer.headers = {{"X-Millrace-Ignored", "messages.[].weight, user"}};
  const auto row = parse_json(batch_answer_row("a", answer, 1));
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->at("response").at("ignored").as_string(), "messages.[].weight, user");
}

// Whoever mends a line gets it answered by the next run.
TEST(BatchRecord, AMendedLineIsAsked) {
  BatchLine wrong = read_batch_line(R"({"custom_id":"a","url":"/nowhere","body":{}})", 1);
  BatchRecord record;
  ASSERT_TRUE(record.add_row(batch_error_row(wrong.id, wrong.wrong)).ok());
  BatchLine mended = read_batch_line(kGood, 1);
  EXPECT_EQ(record.next(mended, 1), BatchRecord::Next::ask);
}

TEST(BatchRecord, OnlyRowsOfABatchAreRows) {
  BatchRecord record;
  for (std::string_view row :
       {"", "x", "{}", R"({"custom_id":"a"})", R"({"response":{}})", R"({"custom_id":5,"error":{}})"})
    EXPECT_FALSE(record.add_row(row).ok()) << row;
  EXPECT_FALSE(record.add_row(kGood).ok()) << "a line of requests is no answer";
  EXPECT_TRUE(BatchRecord::looks_like_row("{\"id\":\"ba"));
  EXPECT_TRUE(BatchRecord::looks_like_row("{"));
  EXPECT_TRUE(BatchRecord::looks_like_row(R"({"id":null,"custom_id":"b","resp)"));
  EXPECT_FALSE(BatchRecord::looks_like_row("my only copy of a poem"));
  EXPECT_FALSE(BatchRecord::looks_like_row(R"({"name":"only copy"})"));
}

}  // namespace
}  // namespace millrace
