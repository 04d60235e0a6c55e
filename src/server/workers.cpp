#include "server/workers.h"

#include <pthread.h>

#include <algorithm>
#include <exception>

namespace millrace {

Workers::Workers(int threads, const char* name) {
  for (int i = 0; i < std::max(threads, 1); ++i) {
    threads_.emplace_back([this] { work(); });
    ::pthread_setname_np(threads_.back().native_handle(), name);
  }
}

void Workers::stop() {
  std::deque<std::function<void()>> dropped;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(tasks_);
  }
  arrived_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Workers::post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
  }
  arrived_.notify_one();
}

size_t Workers::waiting() const {
  std::lock_guard lock(mutex_);
  return tasks_.size();
}

void Workers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    arrived_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    try {
      task();
    } catch (const std::exception&) {
      // Out of memory, most likely. Tasks that owe somebody an answer give it themselves; the worker goes on.
    }
    task = nullptr;  // what it holds is let go without the lock
    lock.lock();
  }
}

}  // namespace millrace
