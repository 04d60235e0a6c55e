// CacheWriting: writes a prefix cache into a file while its engine works. Between two steps the engine copies a part of
// bounded size; a thread of its own digests and writes that part and then asks for the next one, so no step waits for a
// disk and an engine without work has no more to do than one with much. One file at a time.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "cache/cache_file.h"

namespace millrace {

class CacheWriting {
 public:
  // Has a task done between two steps.
  using Between = std::function<void(std::function<void()> task)>;
  // The next part, appended; false: it was the last one. Called between steps.
  using Next = std::function<bool(std::vector<std::byte>& out)>;
  using Done = std::function<void(Result<int64_t> bytes)>;

  explicit CacheWriting(Between between) : between_(std::move(between)) {}
  ~CacheWriting() { stop(); }
  // Any thread. `file` stays open until `done` was called, on a thread of this.
  void start(int file, Next next, Done done);
  // Gives up what is being written. Before the engine's thread ends: no part comes afterwards.
  void stop();

 private:
  struct Piece {  // asked for; outlives whoever asked
    std::mutex mutex;
    std::condition_variable came;
    bool there = false, more = false, given_up = false;
    std::vector<std::byte> bytes;
  };
  Result<int64_t> write(int file, const Next& next, const std::shared_ptr<Piece>& part);

  const Between between_;
  std::mutex mutex_;             // guards all below
  std::shared_ptr<Piece> part_;  // of the file that is being written; null: none
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace millrace
