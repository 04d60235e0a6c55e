// An engine in a process of its own at rest, and with another process: what is open stands still and goes on from the
// tokens already told, as after a death.
#include <signal.h>

#include "process/remote_engine.h"

namespace millrace {

// With the lock held: nothing that the process says of open requests is heard any more.
void RemoteEngine::call_back() {
  for (auto& [id, open] : open_) call_back(id, open);
  alone_.clear();
}

void RemoteEngine::call_back(RequestId id, Open& open) {
  if (open.sent && process_.ready) append_frame(CancelFrame{on_wire(id, open), -1}, out_);
  ++open.round;
}

Result<void> RemoteEngine::pause() {
  {
    std::lock_guard lock(mutex_);
    if (given_up_) return *given_up_;
    if (!std::exchange(paused_, true)) call_back();
  }
  wake();
  return {};
}

// Waits until the memory is given back.
Result<void> RemoteEngine::sleep() {
  TRY_VOID(pause());
  std::unique_lock lock(mutex_);
  asleep_ = true;
  if (process_.id != 0) ::kill(process_.id, SIGKILL);
  buried_.wait(lock, [this] { return (process_.id == 0 && !spawning_) || stopping_ || !asleep_; });
  if (process_.id == 0 && !spawning_) spare_.end();
  return {};
}

void RemoteEngine::go_on() {
  {
    std::lock_guard lock(mutex_);
    if (!std::exchange(paused_, false)) return;
    if (std::exchange(asleep_, false)) gone_since_ = try_at_ = shared_now();
    if (process_.ready) send_open();
  }
  wake();
}

void RemoteEngine::stop_thread() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

Result<void> RemoteEngine::become(std::shared_ptr<EnginePort> other) {
  auto next = std::dynamic_pointer_cast<RemoteEngine>(std::move(other));
  if (next == nullptr) return error(Code::unsupported, "the other engine has no process of its own");
  if (next->first_.facts.limits.context != first_.facts.limits.context ||
      next->first_.facts.vocab != first_.facts.vocab)
    return error(
        Code::invalid, "the new weights have {} tokens of context and {} in their vocabulary, the old {} and {}",
        next->first_.facts.limits.context, next->first_.facts.vocab, first_.facts.limits.context, first_.facts.vocab);
  next->stop_thread();
  std::unique_lock lock(mutex_);
  next_ = std::move(next);
  wake();
  became_.wait(lock, [this] { return next_ == nullptr || stopping_; });
  return {};
}

// The thread.
void RemoteEngine::become_next() {
  std::shared_ptr<RemoteEngine> other;
  {
    std::lock_guard lock(mutex_);
    if (!next_) return;
    other = next_;
    call_back();
    out_.clear();
    Metrics sum = shared_.page().seen().snapshot.metrics;
    sum.carry(before_);
    before_ = sum;
    std::swap(process_, other->process_);  // the old one ends with the other engine
    std::swap(shared_, other->shared_);
    std::swap(spare_, other->spare_);
    first_load_ = std::max(first_load_, other->first_load_);
    command_ = other->command_;
    tokens_ = other->tokens_;
    last_awake_ = 0;
    still_ = quick_deaths_ = 0;
    given_up_.reset();
    for_good_ = false;
    failed_starts_ = 0;
    gone_since_ = process_.ready ? 0 : shared_now();
    asleep_ = false;
    ReadyFrame there;
    there.adapters = other->adapters_;
    if (process_.ready) {
      restore_adapters(there);
      send_open();
    }
  }
  const Error why = error(Code::overloaded, "the engine was changed meanwhile; try again");
  fail_cache_waits(why);
  fail_adapter_waits(why);
  other->end_process(SIGKILL);
  other->spare_.end();
  {
    std::lock_guard lock(mutex_);
    next_.reset();
  }
  became_.notify_all();
  buried_.notify_all();
}

}  // namespace millrace
