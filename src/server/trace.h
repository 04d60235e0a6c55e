// What a request is called by those who follow it through several programs: an id of its own, and its place in a trace
// (W3C Trace Context). Both are taken from its head where they are well formed; without an id it gets one. They stand
// in the log, in /live and in the answer, and decide nothing. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

struct HttpRequest;

struct Trace {
  std::string id;      // X-Request-Id, or one of our own
  std::string trace;   // 32 hexadecimal digits; empty: it is in none
  std::string parent;  // 16: the span that called
  bool sampled = false;
};

// A traceparent's fields into the trace; false: it is none, and nothing is changed.
bool read_traceparent(std::string_view text, Trace& out);
Trace trace_of(const HttpRequest& request);

}  // namespace millrace
