#include "server/doorbell.h"

#include <boost/asio/post.hpp>

namespace millrace {

void Doorbell::ring(std::weak_ptr<Sleeper> sleeper) {
  std::lock_guard lock(mutex_);
  named_.push_back(std::move(sleeper));
  if (rung_) return;  // the I/O thread is on its way
  boost::asio::post(executor_, [self = shared_from_this()] { self->wake_all(); });
  rung_ = true;  // if that throws, whoever comes next rings for both
}

void Doorbell::wake_all() {
  std::vector<std::weak_ptr<Sleeper>> named;
  {
    std::lock_guard lock(mutex_);
    named.swap(named_);
    rung_ = false;
  }
  for (const std::weak_ptr<Sleeper>& one : named)
    if (auto sleeper = one.lock()) sleeper->wake();
}

}  // namespace millrace
