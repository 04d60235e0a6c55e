// Routing: which experts each row of a step goes to, and where its pairs with them lie. A pair is a row and one of its
// experts; every row has exactly `chosen` of them, so all counts but the rows of one expert are known to the host. The
// arrays lie where the backend reads them, in scratch of the step.
//
// Order, on every backend: of equal scores the lower expert wins; a row's experts are listed ascending; pairs lie by
// expert, ascending, and within an expert by row, ascending. Sums over a row's experts run ascending from zero.
#pragma once

#include <cstdint>

namespace millrace {

enum class RouterScore : uint8_t {
  softmax,         // over all experts
  sigmoid,         // of each logit
  sqrt_softplus,   // sqrt(ln(1 + e^logit))
  softmax_chosen,  // chosen by logit, weighted by a softmax over the chosen
  sparse_mixer,    // one after the other, each weighted by a softmax over those near the best that is left
};

enum class GroupScore : uint8_t { most, best_two };  // of its experts: the largest, or the sum of the largest two

inline constexpr int32_t kMostGroups = 1024;  // of experts

// How experts are chosen. Everything is float32.
struct Router {
  int32_t experts = 0, chosen = 0;
  RouterScore score = RouterScore::softmax;
  const float* choice_bias = nullptr;  // [experts] added to scores where experts are chosen, not in weights; or null
  // Experts in `groups` equal groups, of which only the best `chosen_groups` take part. 1: no groups.
  int32_t groups = 1, chosen_groups = 1;
  GroupScore group_score = GroupScore::most;
  bool normalise = false;               // weights are divided by their sum (summed ascending) + epsilon
  float epsilon = 0;                    // of that sum
  float scale = 1;                      // of weights, after that
  const float* expert_scale = nullptr;  // [experts] of weights, last; or null
  // sparse_mixer: an expert is near the best if (best - logit) / max(|logit|, best) <= 2 * jitter
  float jitter = 0;
};

struct Routing {
  int64_t rows = 0;
  int32_t chosen = 0, experts = 0;
  int32_t* expert = nullptr;  // [rows, chosen] ascending in a row
  float* weight = nullptr;    // [rows, chosen]
  int32_t* place = nullptr;   // [rows, chosen] where the pair lies: the row of tensors of pairs
  int32_t* row = nullptr;     // [pairs] the row of the pair that lies there
  int32_t* first = nullptr;   // [experts + 1] pairs of expert e lie at [first[e], first[e + 1])

  int64_t pairs() const { return rows * chosen; }
};

// What the input of a product of experts is: a row for every row of the step, or one for every pair.
enum class ExpertInput : uint8_t { rows, pairs };

// The gate of experts: with a limit, g = min(gate, limit), u = clamp(up, -limit, limit) and the result is
// (u + shift) * g * sigmoid(slope * g).
struct GluLimit {
  float limit = 0;  // 0: the ordinary gate
  float slope = 1, shift = 0;
};

// Different experts that so many rows need if each chooses evenly and by itself: the expected number.
int64_t touched_experts(int64_t experts, int64_t chosen, int64_t rows);

// One row's experts (ascending) and weights, as host backends compute them. `scores` is room for 2 * experts numbers.
void route_row(const Router& router, const float* logits, int32_t* expert, float* weight, float* scores);
// Fills place, row and first from expert: a counting sort that keeps the order of rows.
void sort_pairs(const Routing& routing);

}  // namespace millrace
