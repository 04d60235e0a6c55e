// Share: what one tenant has asked for and been given, counted beside the engine's own metrics, which are those of all.
// It is what a tenant may see of the server. Written by whoever serves its requests, read by whoever shows it; any
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

#include "engine/port.h"

namespace millrace {

class Share {
 public:
  void opened();                 // a request was let in, and waits
  void refused();                // another was not: it came too soon
  void began(int64_t computed);  // an open one has its first token, after so many of its prompt were computed
  struct End {
    bool begun = false, cancelled = false, failed = false;
    double seconds = 0;
    int64_t prompt = 0, completion = 0, cached = 0;
  };
  void ended(const End& end);
  // Tokens that came to one answer, with the time since the last ones, or since the request if they are its first.
  void tokens(int64_t count, bool first, double seconds);

  // In the shape of the engine's: everything about steps and pages is 0.
  EngineSnapshot snapshot() const;

 private:
  mutable std::mutex mutex_;
  Metrics metrics_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace millrace
