// EmbedQueue: texts that wait to become vectors, and the thread that computes them, those of several requests in one
// step. It has the backend to itself. post() from any thread; what is done is told on the queue's own thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "session/embedder.h"

namespace millrace {

class EmbedQueue {
 public:
  using Rows = Result<std::vector<std::vector<float>>>;
  struct Task {
    std::vector<EncodeInput> inputs;      // checked
    std::function<void(Rows rows)> done;  // one row for each input; called once
  };

  // The model outlives the queue.
  EmbedQueue(std::unique_ptr<Embedder> embedder, size_t most_waiting);
  ~EmbedQueue();  // what waits is told that it was cancelled
  EmbedQueue(const EmbedQueue&) = delete;
  EmbedQueue& operator=(const EmbedQueue&) = delete;

  const Embedder& embedder() const { return *embedder_; }
  bool post(Task task);  // false: too many texts wait
  int64_t texts() const;

 private:
  void loop();
  void run(std::vector<Task> tasks);

  std::unique_ptr<Embedder> embedder_;
  const size_t most_waiting_;
  mutable std::mutex mutex_;  // guards the four below
  std::condition_variable arrived_;
  std::deque<Task> waiting_;
  size_t waiting_texts_ = 0;
  int64_t texts_ = 0;  // done since the start
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace millrace
