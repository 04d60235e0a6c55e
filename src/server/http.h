// A request and its answer as plain values, and what stands between whoever speaks HTTP and whoever knows the answer.
// Handlers see nothing of sockets, so everything but the sockets is tested without a network.
//
// A connection gives a handler the request and an Exchange. The handler answers once, now or later and from any
// thread: whole, or as a stream that the connection pulls from the attached Job as fast as the client reads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/trace.h"

namespace millrace {

struct HttpRequest {
  std::string method;                                        // "GET"
  std::string path;                                          // of the target, before the question mark, as it came
  std::string query;                                         // after it
  std::vector<std::pair<std::string, std::string>> headers;  // names in small letters, in the order they came
  std::string body;
  std::shared_ptr<void> charge;  // what the body takes of the room for bodies; let go together with it
  bool secure = false;           // came over TLS
  bool local = false;            // came over a unix socket, which has no host name
  Trace trace = {};              // what it is called

  // The value of a header; empty if it is absent. The first one, where there are several.
  std::string_view header(std::string_view name) const {
    for (const auto& [key, value] : headers)
      if (key == name) return value;
    return {};
  }
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  std::string_view idle = ": ping\n\n";  // what a stream gets when it was silent for long; empty: nothing
  // A body that lives as long as the program (embedded files), sent instead of `body` without a copy.
  std::string_view fixed = {};
};

// Something a client waits for.
class Job {
 public:
  virtual ~Job() = default;
  enum class Pull : uint8_t { more, end };
  // Appends what the client may have now; nothing new is fine. I/O thread, only while a stream is open.
  virtual Pull pull(std::string& out) = 0;
  // Ask again after so many seconds even if nobody said ready(); 0: only then.
  virtual double period() const { return 0; }
  // The client went away, or reads too slowly: nothing more will be asked. I/O thread, at most once.
  virtual void gone() = 0;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Before the answer: who is to be told if the client goes away. May be told at once.
  virtual void attach(std::shared_ptr<Job> job) = 0;
  virtual void answer(HttpAnswer answer) = 0;
  // Status and headers now, the body from the attached job. Idle streams get a comment line now and then.
  virtual void stream(HttpAnswer head) = 0;
  // The attached job has something to pull.
  virtual void ready() = 0;
};

// %41 as A; what is no such thing stays as it is.
std::string percent_decoded(std::string_view text);
// What a query, "a=1&b=2", says of a name: decoded, a plus as the space that forms write so; empty if it says nothing.
std::string query_value(std::string_view query, std::string_view name);

// Why a status is what it is: "Not Found".
std::string_view reason_phrase(int status);

}  // namespace millrace
