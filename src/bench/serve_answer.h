// Reading a server's answer as it arrives: HTTP/1.1 framing, server-sent events, and what each event says about a
// request's times and tokens. Bytes in, values out: no sockets and no clock here. Not shared between threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "bench/serve_metrics.h"

namespace millrace {

// One response. Bodies may be chunked, of stated length, or end with the connection.
class ResponseReader {
 public:
  // Takes bytes as they come and appends what they hold of the body. An error: this is not HTTP.
  Result<void> feed(std::string_view bytes, std::string& body);
  Result<void> closed();  // the peer ended the connection; an error if something was still to come

  int status() const { return status_; }
  bool begun() const { return begun_; }  // any byte has come
  bool has_head() const { return state_ > State::head; }
  bool complete() const { return state_ == State::complete; }
  bool keeps_open() const { return keeps_open_; }  // the connection may be used again

 private:
  enum class State : uint8_t { head, length, chunk_size, chunk, chunk_end, trailer, until_close, complete };
  Result<void> read_head(std::string_view head);
  Result<bool> take_line(std::string_view& bytes);  // a whole line is in line_
  Result<void> read_chunk_size();

  State state_ = State::head;
  int status_ = 0;
  bool begun_ = false, keeps_open_ = true;
  uint64_t left_ = 0;  // of the body or the chunk
  std::string line_;   // or the head, as far as it came
};

// Turns the events of one streamed completion into a ServeRecord.
class AnswerReader {
 public:
  explicit AnswerReader(bool chat) : chat_(chat) {}
  // Body bytes that arrived at `now`, in seconds after the request was sent.
  Result<void> feed(std::string_view bytes, double now);
  // The record with what is known at the end of the answer. Fails the record if no token came.
  ServeRecord finish();
  bool done() const { return done_; }  // [DONE] was seen

 private:
  Result<void> take(std::string_view data, double now);
  void note_usage(const Json& usage);

  bool chat_;
  bool done_ = false;
  int64_t pieces_ = 0;
  double last_ = 0;
  std::string line_;
  ServeRecord record_;
};

// What a server says was wrong, from the body of an error answer: OpenAI's message, or the body itself, shortened.
std::string error_message(int status, std::string_view body);

}  // namespace millrace
