// Reply: the answer to one request on its way from whoever gives it to the connection that waits for it. Answers and
// ready() come from any thread, everything else from the I/O thread; the wake function is called at most once between
// two looks, with the lock held.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "server/http.h"

namespace millrace {

class Reply : public Exchange, public std::enable_shared_from_this<Reply> {
 public:
  explicit Reply(std::function<void()> wake) : wake_(std::move(wake)) {}

  void attach(std::shared_ptr<Job> job) override {
    std::unique_lock lock(mutex_);
    if (closed_) {
      lock.unlock();
      job->gone();
      return;
    }
    job_ = std::move(job);
  }
  void answer(HttpAnswer answer) override {
    std::lock_guard lock(mutex_);
    if (head_) return;
    head_ = std::move(answer);
    signal();
  }
  void stream(HttpAnswer head) override {
    std::lock_guard lock(mutex_);
    if (head_) return;
    head_ = std::move(head);
    streaming_ = true;
    signal();
  }
  void ready() override {
    std::lock_guard lock(mutex_);
    ready_ = true;
    signal();
  }

  // I/O thread.
  struct Seen {
    bool answered = false, streaming = false, ready = false;
  };
  Seen look() {
    std::lock_guard lock(mutex_);
    signalled_ = false;
    return {head_.has_value(), streaming_, std::exchange(ready_, false)};
  }
  HttpAnswer take_head() {
    std::lock_guard lock(mutex_);
    return std::move(*head_);
  }
  std::shared_ptr<Job> job() {
    std::lock_guard lock(mutex_);
    return job_;
  }
  // Nothing more will be looked at. `gone`: the client did not get everything.
  void close(bool gone) {
    std::unique_lock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    std::shared_ptr<Job> job = std::move(job_);
    wake_ = nullptr;
    lock.unlock();
    if (gone && job) job->gone();
  }

 private:
  void signal() {
    if (!closed_ && wake_ && !std::exchange(signalled_, true)) wake_();
  }
  std::mutex mutex_;
  std::function<void()> wake_;
  std::optional<HttpAnswer> head_;
  std::shared_ptr<Job> job_;
  bool streaming_ = false, ready_ = false, closed_ = false, signalled_ = false;
};

}  // namespace millrace
