#include "server/doorbell.h"

#include "base/check.h"

namespace millrace {
namespace {

thread_local Doorbell::Together* together = nullptr;

}  // namespace

Doorbell::Together::Together() {
  CHECK(together == nullptr, "one inside another");
  together = this;
}

Doorbell::Together::~Together() {
  together = nullptr;
  if (held_ == nullptr) return;
  try {
    held_->call();
  } catch (const std::exception&) {
    // Out of memory: whoever rings next calls for these too.
  }
}

void Doorbell::ring(std::weak_ptr<Sleeper> sleeper) {
  {
    std::lock_guard lock(mutex_);
    named_.push_back(std::move(sleeper));
  }
  if (together != nullptr && (together->held_ == nullptr || together->held_.get() == this)) {
    together->held_ = shared_from_this();
  } else {
    call();
  }
}

void Doorbell::call() {
  std::lock_guard lock(mutex_);
  if (called_ || named_.empty()) return;
  post_([self = shared_from_this()] { self->wake_all(); });
  called_ = true;
}

void Doorbell::wake_all() {
  std::vector<std::weak_ptr<Sleeper>> named;
  {
    std::lock_guard lock(mutex_);
    named.swap(named_);
    called_ = false;
  }
  for (const std::weak_ptr<Sleeper>& one : named)
    if (auto sleeper = one.lock()) sleeper->wake();
}

}  // namespace millrace
