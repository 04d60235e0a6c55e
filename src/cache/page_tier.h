// PageTier: pages of prefixes kept outside the process, for other replicas and later times. The engine asks for what a
// prompt needs beyond its own tree and goes on computing whatever does not come in time; nothing that a tier does can
// fail a request or change an answer. get() and put() return at once; `done` is called on the tier's own thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cache/identity.h"

namespace millrace {

// A whole node of the prefix tree.
struct TierNode {
  Identity chain;
  std::vector<uint8_t> present;  // by slot
  std::string pages;             // those present, one after the other
};

struct TierCounters {
  int64_t asked = 0;    // look-ups
  int64_t skipped = 0;  // not made, because computing was expected to be faster
  int64_t found = 0;    // nodes that came
  int64_t missed = 0;   // nodes that were not there
  int64_t late = 0;     // look-ups that did not end in time
  int64_t refused = 0;  // nodes that were not what was put there
  int64_t failed = 0;   // connections that broke or could not be made
  int64_t stored = 0;   // nodes put there
  int64_t dropped = 0;  // nodes that were not, for want of time or room
};

class PageTier {
 public:
  PageTier() = default;
  virtual ~PageTier() = default;
  PageTier(const PageTier&) = delete;
  PageTier& operator=(const PageTier&) = delete;

  // What getting so many nodes of so many bytes each takes, by what it took of late; infinite while it is not to be
  // had.
  virtual double expected_seconds(int64_t nodes, int64_t node_bytes) = 0;
  virtual void skip() = 0;  // somebody did not ask; counted
  // The nodes from the first on, up to the first that is not there, whatever has come within `seconds`.
  virtual void get(std::vector<Identity> chains, double seconds, std::function<void(std::vector<TierNode>)> done) = 0;
  virtual void put(std::vector<TierNode> nodes) = 0;
  virtual TierCounters counters() const = 0;
  virtual void stop() = 0;  // nothing is called after this
};

}  // namespace millrace
