// Roofline: what a pass over given tokens costs, from the calls the network really makes (forward() under trace), and
// the least time a machine could take for it. No formula of any model is written here. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/trace/trace.h"
#include "ledger/machine.h"
#include "model/model.h"

namespace millrace {

// Tokens [begin, begin + count) of one sequence, of which the last `wanted` give logits.
struct PassRows {
  int32_t begin = 0, count = 1, wanted = 1;
};

// What each call of one pass would cost. The model may be a real one or an outline.
std::vector<TraceRecord> trace_pass(const Model& model, DType kv, std::span<const PassRows> sequences);

enum class Bound : uint8_t { memory, compute };

// The least time: every op takes the longer of moving its weights and cache and doing its arithmetic, one after
// another. Activations are counted as free, for they can stay in the caches.
struct Floor {
  double seconds = 0;
  double memory_seconds = 0;   // of ops bound by memory
  double compute_seconds = 0;  // of ops bound by arithmetic
  double bytes = 0;            // weights and cache
  double flops = 0;

  Bound bound() const { return memory_seconds >= compute_seconds ? Bound::memory : Bound::compute; }
  Floor& operator+=(const Floor& other);
};

// `fast`: weights are multiplied in the arithmetic the backend is quickest in (int8 for grouped formats, bfloat16);
// otherwise all in float32.
Floor floor_of(std::span<const TraceRecord> records, const Machine& machine, bool fast);

}  // namespace millrace
