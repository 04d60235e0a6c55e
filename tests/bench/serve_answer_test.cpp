#include "bench/serve_answer.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

const char* const kChunked =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    "5\r\nhello\r\nA;name=x\r\n 123456789\r\n0\r\nTrailer: x\r\n\r\n";

TEST(ResponseReader, BytesMayComeInAnyPieces) {
  std::string whole = kChunked;
  for (size_t piece = 1; piece <= whole.size(); ++piece) {
    ResponseReader reader;
    std::string body;
    for (size_t at = 0; at < whole.size(); at += piece) {
      ASSERT_TRUE(reader.feed(std::string_view(whole).substr(at, piece), body).ok());
    }
    EXPECT_TRUE(reader.complete()) << piece;
    EXPECT_TRUE(reader.keeps_open());
    EXPECT_EQ(reader.status(), 200);
    EXPECT_EQ(body, "hello 123456789");
  }
}

TEST(ResponseReader, LengthsAndClosings) {
  struct Case {
    const char* text;
    bool complete, keeps_open, clean_close;
    const char* body;
  };
  for (const Case& c :
       {Case{"HTTP/1.1 429 Too Many\r\ncontent-length: 2\r\n\r\nno", true, true, true, "no"},
        Case{"HTTP/1.1 204 None\r\n\r\n", true, true, true, ""},
        Case{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", true, true, true, "x"},
        Case{"HTTP/1.0 200 OK\r\n\r\nall", false, false, true, "all"},
        Case{"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nab", false, false, false, "ab"},
        Case{"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nab", true, false, true, "ab"}}) {
    ResponseReader reader;
    std::string body;
    ASSERT_TRUE(reader.feed(c.text, body).ok()) << c.text;
    EXPECT_EQ(reader.complete(), c.complete) << c.text;
    EXPECT_EQ(reader.keeps_open(), c.keeps_open) << c.text;
    EXPECT_EQ(body, c.body);
    EXPECT_EQ(reader.closed().ok(), c.clean_close) << c.text;
  }
}

TEST(ResponseReader, WhatIsNotHttpIsRefused) {
  for (const char* text :
       {"SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"}) {
    ResponseReader reader;
    std::string body;
    EXPECT_FALSE(reader.feed(text, body).ok()) << text;
  }
  ResponseReader reader;
  std::string body;
  EXPECT_FALSE(reader.feed(std::string(1 << 20, 'a'), body).ok());
}

TEST(AnswerReader, CompletionsCountEveryTokenAndTheirTimes) {
  AnswerReader reader(false);
  ASSERT_TRUE(reader.feed(": ping\n\ndata: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n", 0.25).ok());
  ASSERT_TRUE(reader.feed("data: {\"choices\":[{\"text\":\"\",\"finish_reason\":null}]}\r\n\r\nda", 0.5).ok());
  ASSERT_TRUE(reader.feed("ta: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}]}\n\n", 1).ok());
  ASSERT_TRUE(reader
                  .feed("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,"
                        "\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\ndata: [DONE]\n\n",
                        2)
                  .ok());
  EXPECT_TRUE(reader.done());
  ServeRecord record = reader.finish();
  EXPECT_TRUE(record.ok);
  EXPECT_EQ(record.text, "ab");
  EXPECT_EQ(record.first_token, 0.25);
  EXPECT_EQ(record.next_tokens, (std::vector<double>{0.25, 0.5}));
  EXPECT_EQ(record.latency, 1);
  EXPECT_EQ(record.output_tokens, 3);
  EXPECT_EQ(record.prompt_tokens, 9);
  EXPECT_EQ(record.cached_tokens, 8);
}

TEST(AnswerReader, ChatCountsWordsNotRoles) {
  AnswerReader reader(true);
  ASSERT_TRUE(reader.feed("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n", 0.1).ok());
  ASSERT_TRUE(reader.feed("data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n", 0.5).ok());
  ASSERT_TRUE(reader.feed("data: {\"choices\":[{\"delta\":{\"content\":\"yes\"}}]}\n\n", 0.75).ok());
  ASSERT_TRUE(reader.feed("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", 0.9).ok());
  ServeRecord record = reader.finish();
  EXPECT_EQ(record.first_token, 0.5);
  EXPECT_EQ(record.latency, 0.75);
  EXPECT_EQ(record.output_tokens, 2);  // pieces, where the server does not count
  EXPECT_EQ(record.text, "hmyes");
}

TEST(AnswerReader, ErrorsAndEmptyAnswersFail) {
  AnswerReader reader(false);
  auto fed = reader.feed("data: {\"error\":{\"message\":\"out of pages\"}}\n\n", 1);
  ASSERT_FALSE(fed.ok());
  EXPECT_EQ(fed.error().message, "out of pages");
  EXPECT_FALSE(AnswerReader(false).feed("data: {nonsense\n", 1).ok());
  AnswerReader silent(false);
  ASSERT_TRUE(silent.feed("data: [DONE]\n\n", 1).ok());
  EXPECT_FALSE(silent.finish().ok);
}

TEST(ErrorMessage, IsTheServersOwn) {
  EXPECT_EQ(error_message(429, "{\"error\":{\"message\":\"wait\",\"type\":\"x\"}}"), "429: wait");
  EXPECT_EQ(error_message(500, "<html>"), "500: <html>");
}

}  // namespace
}  // namespace millrace
