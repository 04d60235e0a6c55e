// Arithmetic of serving that needs no model: what paging wastes, what a schedule of fixed batches leaves idle, and how
// many passes speculation saves. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"

namespace millrace {

// Sequences of these lengths, in pages of so many tokens, against reserving the longest possible for each.
struct PageWaste {
  int64_t used = 0;      // tokens
  int64_t paged = 0;     // tokens the pages hold
  int64_t reserved = 0;  // sequences x context
  double paged_waste() const { return paged > 0 ? 1 - static_cast<double>(used) / static_cast<double>(paged) : 0; }
  double reserved_waste() const {
    return reserved > 0 ? 1 - static_cast<double>(used) / static_cast<double>(reserved) : 0;
  }
};
Result<PageWaste> page_waste(std::span<const int64_t> lengths, int64_t page_tokens, int64_t context);

// Answers of these lengths on a machine that decodes `slots` sequences at once. Static: a batch ends with its longest
// answer before the next begins. Continuous: a free slot takes the next answer at once.
struct BatchUse {
  int64_t static_steps = 0, continuous_steps = 0;
  double static_use = 0, continuous_use = 0;  // share of slots that did something
};
Result<BatchUse> batch_use(std::span<const int64_t> outputs, int64_t slots);

// Drafting k tokens a pass, each accepted with probability a given that those before it were.
struct Speculation {
  double tokens_per_pass = 1;  // the one the target gives anyway counted
  double passes = 0;           // expected target passes for the answer
  double speedup = 1;
};
// A drafted token costs `draft_cost` of a target pass over one token, and a pass that checks them all `check_cost`.
Result<Speculation> speculate(double acceptance, int32_t drafted, double draft_cost, int64_t output,
                              double check_cost = 1);

}  // namespace millrace
