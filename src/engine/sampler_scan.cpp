#include "engine/sampler_scan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/shortlist_math.h"

namespace millrace {
namespace {

constexpr size_t kLanes = 16;
constexpr float kNever = -std::numeric_limits<float>::infinity();

// Choices between floats are made on their bits: compilers turn those into vector instructions, but keep a branch where
// a comparison of floats might trap.

// For x <= 0: the larger of x and `least`, also for -infinity.
inline float at_least(float x, float least) {
  return std::bit_cast<float>(std::min(std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(least)));
}

// Integers in the order of the floats they come from; NaNs lie outside the infinities.
inline int32_t ordered(float x) {
  int32_t bits = std::bit_cast<int32_t>(x);
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}

// Calls body(pointer to kLanes values) over the whole row; the end is padded with -infinity.
template <class F>
inline void for_lanes(std::span<const float> logits, F body) {
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) body(logits.data() + i, i);
  if (i < logits.size()) {
    float rest[kLanes];
    std::fill_n(rest, kLanes, kNever);
    std::copy(logits.begin() + static_cast<ptrdiff_t>(i), logits.end(), rest);
    body(rest, i);
  }
}

inline bool any_above(const float* values, float bar) {
  int32_t found = 0;
  for (size_t i = 0; i < kLanes; ++i) found |= static_cast<int32_t>(values[i] > bar);
  return found != 0;
}

template <size_t N>
double sum_lanes(const double (&lanes)[N]) {
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

Error bad_logit(std::span<const float> logits) {
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] < std::numeric_limits<float>::infinity()) continue;
    return error(Code::corrupt, "the model gave {} as the logit of token {}: its weights or its arithmetic are broken",
                 std::isnan(logits[id]) ? "NaN" : "infinity", id);
  }
  return error(Code::invalid, "no token is left to choose from: all {} are banned or impossible", logits.size());
}

}  // namespace

float fast_exp(float x) { return exp_below(x); }

Result<Candidate> find_largest(std::span<const float> logits) {
  int32_t best[kLanes], least[kLanes];
  std::fill_n(best, kLanes, ordered(kNever));
  std::fill_n(least, kLanes, ordered(kNever));
  for_lanes(logits, [&](const float* values, size_t) {
    for (size_t i = 0; i < kLanes; ++i) {
      best[i] = std::max(best[i], ordered(values[i]));
      least[i] = std::min(least[i], ordered(values[i]));
    }
  });
  int32_t largest = *std::max_element(best, best + kLanes);
  bool nan_below = *std::min_element(least, least + kLanes) < ordered(kNever);
  bool too_large = largest >= ordered(std::numeric_limits<float>::infinity());  // NaN too
  if (nan_below || too_large || largest == ordered(kNever)) return bad_logit(logits);
  // Back from the order; -0 and 0 are equal and the first of them counts.
  float value = std::bit_cast<float>(largest ^ ((largest >> 31) & 0x7FFFFFFF));
  size_t id = static_cast<size_t>(std::find(logits.begin(), logits.end(), value) - logits.begin());
  return Candidate{static_cast<Token>(id), value};
}

WeightSums sum_weights(std::span<const float> logits, float largest, float inverse_temperature) {
  double weights[kLanes] = {}, weighted[kLanes] = {};
  for_lanes(logits, [&](const float* values, size_t) {
    float below[kLanes], weight[kLanes];
    for (size_t i = 0; i < kLanes; ++i) {
      below[i] = values[i] - largest;
      weight[i] = exp_below(below[i] * inverse_temperature);
      below[i] = at_least(below[i], -std::numeric_limits<float>::max());  // -infinity times zero would be NaN
    }
    for (size_t i = 0; i < kLanes; ++i) {
      weights[i] += static_cast<double>(weight[i]);
      weighted[i] += static_cast<double>(weight[i] * below[i]);
    }
  });
  return {sum_lanes(weights), sum_lanes(weighted)};
}

double standard_deviation(std::span<const float> logits) {
  double sums[kLanes] = {}, counts[kLanes] = {};
  for_lanes(logits, [&](const float* values, size_t) {
    for (size_t i = 0; i < kLanes; ++i) {
      sums[i] += values[i] > kNever ? static_cast<double>(values[i]) : 0.0;
      counts[i] += values[i] > kNever ? 1.0 : 0.0;
    }
  });
  double count = sum_lanes(counts);
  if (count == 0) return 0;
  double mean = sum_lanes(sums) / count;
  double squares[kLanes] = {};
  for_lanes(logits, [&](const float* values, size_t) {
    for (size_t i = 0; i < kLanes; ++i) {
      double off = values[i] > kNever ? static_cast<double>(values[i]) - mean : 0.0;
      squares[i] += off * off;
    }
  });
  return std::sqrt(sum_lanes(squares) / count);
}

void select_largest(std::span<const float> logits, size_t k, std::vector<Candidate>& out) {
  out.clear();
  if (k == 0) return;
  // Candidates gather until there are twice as many as wanted; then the worse half goes, and what is left sets the bar.
  // Ids come in ascending order, so a later logit equal to the bar loses against the earlier ones.
  const size_t room = std::min(2 * k, logits.size()) + kLanes;
  out.reserve(room);
  float bar = kNever;
  for_lanes(logits, [&](const float* values, size_t first) {
    if (!any_above(values, bar)) return;
    for (size_t i = 0; i < kLanes; ++i) {
      if (values[i] > bar) out.push_back({static_cast<Token>(first + i), values[i]});
    }
    if (out.size() + kLanes > room && out.size() > k) {
      std::nth_element(out.begin(), out.begin() + static_cast<ptrdiff_t>(k - 1), out.end(), likelier);
      out.resize(k);
      bar = out.back().logit;
    }
  });
  if (out.size() > k) {
    std::nth_element(out.begin(), out.begin() + static_cast<ptrdiff_t>(k - 1), out.end(), likelier);
    out.resize(k);
  }
  std::sort(out.begin(), out.end(), likelier);
}

}  // namespace millrace
