// QueuedTier: what tiers have in common. One thread does what was asked, look-ups first, then what is to be put, one
// node at a time. A second thread answers look-ups whose time is over while the first is held up by a store that hangs.
// What look-ups take is measured as they are made; one that would take longer than computing is not made, but for one
// of many, to measure again. After a failure nobody asks for a while.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <thread>

#include "cache/page_tier.h"

namespace millrace {

struct QueueOptions {
  size_t most_waiting = size_t{64} << 20;  // bytes that wait to be put; more are dropped
  double breaker_seconds = 5;              // that nobody asks after a failure
  double wait = 0;  // seconds that a look-up may always take, whatever computing would; 0: as long as it pays
  double round_seconds = 0.0005, byte_seconds = 4e-9;  // what look-ups take, until it is measured
};

class QueuedTier : public PageTier {
 public:
  explicit QueuedTier(QueueOptions options)
      : options_(options), round_seconds_(options.round_seconds), byte_seconds_(options.byte_seconds) {}

  double expected_seconds(int64_t nodes, int64_t node_bytes) override;
  void skip() override;
  void get(std::vector<Identity> chains, double seconds, std::function<void(std::vector<TierNode>)> done) override;
  void put(std::vector<TierNode> nodes) override;
  TierCounters counters() const override;
  void stop() override;

 protected:
  using Clock = std::chrono::steady_clock;
  static double seconds_until(Clock::time_point then) {
    return std::chrono::duration<double>(then - Clock::now()).count();
  }

  // The last thing a tier's constructor does; its destructor calls stop().
  void start();
  // All below on the tier's thread.
  //
  // Nodes from the first on, up to the first that is not there or does not come in time. Adds the bytes it read.
  virtual void look_up(std::span<const Identity> chains, Clock::time_point until, std::vector<TierNode>& found,
                       size_t& bytes) = 0;
  virtual bool store(const TierNode& node) = 0;  // false: there was no room
  virtual void close() {}                        // nothing follows

  void count(int64_t TierCounters::*what, int64_t by = 1);
  // Nobody asks for a while.
  void break_off(int64_t TierCounters::*what);

 private:
  struct Get {
    std::vector<Identity> chains;
    Clock::time_point until;
    std::function<void(std::vector<TierNode>)> done;
  };
  void loop();
  void give_up_loop();
  std::vector<TierNode> answer(const Get& asked);
  void take_in(const TierNode& node);
  bool closed() const;
  void measure(double seconds, size_t bytes);

  const QueueOptions options_;
  mutable std::mutex mutex_;                 // guards all below but the threads
  std::condition_variable arrived_, asked_;  // for either thread
  std::deque<Get> gets_;
  std::deque<TierNode> puts_;
  size_t waiting_bytes_ = 0;
  TierCounters counters_;
  Clock::time_point closed_until_ = {};
  double round_seconds_, byte_seconds_;
  int since_probe_ = 0;
  bool stopping_ = false;
  std::thread thread_, giving_up_;
};

}  // namespace millrace
