#include "tier/queued_tier.h"

#include <algorithm>
#include <limits>

namespace millrace {
namespace {

constexpr int kProbe = 64;  // of so many look-ups that would not pay one is made

}  // namespace

void QueuedTier::start() {
  thread_ = std::thread([this] { loop(); });
  giving_up_ = std::thread([this] { give_up_loop(); });
}

double QueuedTier::expected_seconds(int64_t nodes, int64_t node_bytes) {
  std::lock_guard lock(mutex_);
  if (Clock::now() < closed_until_) return std::numeric_limits<double>::infinity();
  if (options_.wait > 0) return 0;
  if (++since_probe_ >= kProbe) {
    since_probe_ = 0;
    return 0;
  }
  return round_seconds_ + byte_seconds_ * static_cast<double>(nodes * node_bytes);
}

void QueuedTier::skip() { count(&TierCounters::skipped); }

void QueuedTier::get(std::vector<Identity> chains, double seconds, std::function<void(std::vector<TierNode>)> done) {
  {
    std::lock_guard lock(mutex_);
    if (!stopping_) {
      ++counters_.asked;
      seconds = std::max(seconds, options_.wait);
      const auto until =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
      gets_.push_back({std::move(chains), until, std::move(done)});
      done = nullptr;
    }
  }
  arrived_.notify_one();
  asked_.notify_one();
  if (done) done({});
}

void QueuedTier::put(std::vector<TierNode> nodes) {
  {
    std::lock_guard lock(mutex_);
    for (TierNode& node : nodes) {
      if (stopping_ || waiting_bytes_ + node.pages.size() > options_.most_waiting) {
        ++counters_.dropped;
        continue;
      }
      waiting_bytes_ += node.pages.size();
      puts_.push_back(std::move(node));
    }
  }
  arrived_.notify_one();
}

TierCounters QueuedTier::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

void QueuedTier::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_one();
  asked_.notify_one();
  if (thread_.joinable()) thread_.join();
  if (giving_up_.joinable()) giving_up_.join();
}

void QueuedTier::loop() {
  for (std::unique_lock lock(mutex_);;) {
    arrived_.wait(lock, [this] { return stopping_ || !gets_.empty() || !puts_.empty(); });
    if (stopping_) break;
    if (!gets_.empty()) {
      Get next = std::move(gets_.front());
      gets_.pop_front();
      lock.unlock();
      next.done(answer(next));
    } else {
      const TierNode node = std::move(puts_.front());
      puts_.pop_front();
      lock.unlock();
      take_in(node);
    }
    lock.lock();
  }
  close();
}

// What waits behind a node that is being put is not kept waiting longer than it asked for.
void QueuedTier::give_up_loop() {
  for (std::unique_lock lock(mutex_); !stopping_;) {
    if (gets_.empty()) {
      asked_.wait(lock, [this] { return stopping_ || !gets_.empty(); });
      continue;
    }
    const auto first = std::ranges::min_element(gets_, {}, &Get::until);
    if (const auto until = first->until; Clock::now() < until) {
      asked_.wait_until(lock, until);
      continue;
    }
    const Get late = std::move(*first);
    gets_.erase(first);
    ++counters_.late;
    lock.unlock();
    late.done({});
    lock.lock();
  }
}

void QueuedTier::count(int64_t TierCounters::*what, int64_t by) {
  std::lock_guard lock(mutex_);
  counters_.*what += by;
}

void QueuedTier::break_off(int64_t TierCounters::*what) {
  std::lock_guard lock(mutex_);
  ++(counters_.*what);
  closed_until_ = Clock::now() +
                  std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.breaker_seconds));
}

bool QueuedTier::closed() const {
  std::lock_guard lock(mutex_);
  return Clock::now() < closed_until_;
}

std::vector<TierNode> QueuedTier::answer(const Get& asked) {
  std::vector<TierNode> found;
  if (closed()) return found;
  const auto began = Clock::now();
  if (seconds_until(asked.until) <= 0) {
    count(&TierCounters::late);
    return found;
  }
  size_t bytes = 0;
  look_up(asked.chains, asked.until, found, bytes);
  count(&TierCounters::found, static_cast<int64_t>(found.size()));
  count(&TierCounters::missed, static_cast<int64_t>(asked.chains.size() - found.size()));
  if (!closed()) measure(-seconds_until(began), bytes);
  return found;
}

// What look-ups take, of late: a round, and each byte more.
void QueuedTier::measure(double seconds, size_t bytes) {
  std::lock_guard lock(mutex_);
  constexpr double kWeight = 0.2;
  if (bytes == 0) {
    round_seconds_ += kWeight * (seconds - round_seconds_);
  } else {
    const double each = std::max(0.0, seconds - round_seconds_) / static_cast<double>(bytes);
    byte_seconds_ += kWeight * (each - byte_seconds_);
  }
}

void QueuedTier::take_in(const TierNode& node) {
  const bool stored = !closed() && store(node);
  std::lock_guard lock(mutex_);
  waiting_bytes_ -= node.pages.size();
  ++(stored ? counters_.stored : counters_.dropped);
}

}  // namespace millrace
