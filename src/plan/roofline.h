// Roofline: what a pass over given tokens costs, from the calls the network really makes (forward() under trace), and
// the least time a machine could take for it. No formula of any model is written here. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/timed/timed.h"
#include "backend/trace/trace.h"
#include "machine/ceilings.h"
#include "model/model.h"

namespace millrace {

// Tokens [begin, begin + count) of one sequence, of which the last `wanted` give logits.
struct PassRows {
  int32_t begin = 0, count = 1, wanted = 1;
};

// What each call of one pass would cost. The model may be a real one or an outline.
std::vector<TraceRecord> trace_pass(const Model& model, const KvForm& kv, std::span<const PassRows> sequences);
// Gives timed calls their costs, by tracing every step they belong to again.
void count_costs(CallOps& timed, const Model& model, const KvForm& kv);
// A pass under any Ops, such as one that keeps calls whole.
void run_pass(Ops& ops, const Model& model, const KvForm& kv, std::span<const PassRows> sequences);

// How fast a machine is at most: what memory gives, and the operations a second (a multiplication and an addition are
// two) that products have with weights of each kind of format.
struct Ceilings {
  double read_bytes = 0;
  double grouped = 0;  // quantised in groups
  double f8 = 0, f16 = 0, bf16 = 0, f32 = 0;
  double attend = 0;  // scores and sums of values

  double operations(const TraceRecord& record) const;
};

// `fast`: weights are multiplied in the arithmetic the backend is quickest in (int8 for grouped formats, bfloat16);
// otherwise all in float32.
Ceilings ceilings_of(const Machine& machine, bool fast);

// The least time: every op takes the longer of moving its weights and cache and doing its arithmetic, one after
// another. Activations are counted as free, for they can stay in the caches.
struct Floor {
  double seconds = 0;
  double memory_seconds = 0;   // of ops bound by memory
  double compute_seconds = 0;  // of ops bound by arithmetic
  double bytes = 0;            // weights and cache
  double flops = 0;

  double intensity() const { return bytes > 0 ? flops / bytes : 0; }  // operations a byte
  Bound bound() const { return memory_seconds >= compute_seconds ? Bound::memory : Bound::compute; }
  Floor& operator+=(const Floor& other);
};

Floor floor_of(std::span<const TraceRecord> records, const Ceilings& ceilings);
Floor floor_of(std::span<const TraceRecord> records, const Machine& machine, bool fast);

}  // namespace millrace
