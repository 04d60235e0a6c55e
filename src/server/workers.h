// Workers: threads that do what must not be done on the I/O thread or the engine thread, in the order it came. Any
// thread may post. stop() finishes what runs, drops what waits and what is posted later, and joins.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace millrace {

class Workers {
 public:
  // The name is what the operating system shows for the threads; at most 15 characters.
  Workers(int threads, const char* name);
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void post(std::function<void()> task);
  size_t waiting() const;
  void stop();

 private:
  void work();

  mutable std::mutex mutex_;  // guards the two below
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::condition_variable arrived_;
  std::vector<std::thread> threads_;
};

}  // namespace millrace
