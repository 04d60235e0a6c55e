#include "backend/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The first of the largest; `from` if nothing is larger than -infinity.
int32_t best_of(const float* values, int32_t from, int32_t end) {
  int32_t best = from;
  for (int32_t i = from + 1; i < end; ++i) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

// The best that is left; where nothing is (numbers that are none), the lowest expert not yet taken.
int32_t pick(const float* choice, int32_t experts, const int32_t* taken, int32_t count) {
  const int32_t best = best_of(choice, 0, experts);
  if (choice[best] > kNever) return best;
  for (int32_t e = 0; e < experts; ++e) {
    if (std::find(taken, taken + count, e) == taken + count) return e;
  }
  return best;
}

float score_of(RouterScore score, float logit) {
  if (score == RouterScore::sigmoid) return 1 / (1 + std::exp(-logit));
  const float softplus = logit > 20 ? logit : std::log1p(std::exp(logit));
  return std::sqrt(softplus);
}

void softmax(float* values, int32_t count) {
  const float most = values[best_of(values, 0, count)];
  float sum = 0;
  for (int32_t i = 0; i < count; ++i) sum += values[i] = std::exp(values[i] - most);
  for (int32_t i = 0; i < count; ++i) values[i] /= sum;
}

// Experts outside the best groups can no longer be chosen.
void keep_groups(const Router& router, float* choice) {
  const int32_t size = router.experts / router.groups;
  auto score = [&](int32_t group) {
    const float* of = choice + group * size;
    const int32_t best = best_of(of, 0, size);
    if (router.group_score == GroupScore::most || size == 1) return of[best];
    float second = kNever;
    for (int32_t i = 0; i < size; ++i) {
      if (i != best) second = std::max(second, of[i]);
    }
    return of[best] + second;
  };
  // A group stays if fewer than `chosen_groups` are better: of equals the lower.
  uint64_t dropped[kMostGroups / 64] = {};
  for (int32_t group = 0; group < router.groups; ++group) {
    const float own = score(group);
    int32_t better = 0;
    for (int32_t other = 0; other < router.groups; ++other) {
      const float theirs = score(other);
      better += other != group && (theirs > own || (theirs == own && other < group));
    }
    if (better >= router.chosen_groups) dropped[group / 64] |= uint64_t{1} << (group % 64);
  }
  for (int32_t group = 0; group < router.groups; ++group) {
    if ((dropped[group / 64] >> (group % 64) & 1) != 0) std::fill_n(choice + group * size, size, kNever);
  }
}

// Chooses one expert after the other; each one's weight is its share among those near it.
void mix_sparsely(const Router& router, const float* logits, int32_t* expert, float* weight, float* left) {
  std::copy_n(logits, router.experts, left);
  for (int32_t i = 0; i < router.chosen; ++i) {
    const int32_t best = pick(left, router.experts, expert, i);
    const float most = left[best];
    float sum = 0;
    for (int32_t e = 0; e < router.experts; ++e) {
      const float apart = (most - logits[e]) / std::max(std::abs(logits[e]), most);
      if (left[e] != kNever && !(apart > 2 * router.jitter)) sum += std::exp(left[e] - most);
    }
    expert[i] = best;
    weight[i] = 1 / sum;
    left[best] = kNever;
  }
}

void choose(const Router& router, const float* logits, int32_t* expert, float* weight, float* scores) {
  float* choice = scores + router.experts;
  std::copy_n(logits, router.experts, scores);
  if (router.score == RouterScore::softmax) softmax(scores, router.experts);
  if (router.score == RouterScore::sigmoid || router.score == RouterScore::sqrt_softplus) {
    for (int32_t e = 0; e < router.experts; ++e) scores[e] = score_of(router.score, scores[e]);
  }
  // What grows with the logit is chosen by the logit, which rounding has not made equal.
  std::copy_n(router.choice_bias != nullptr || router.groups > 1 ? scores : logits, router.experts, choice);
  if (router.choice_bias != nullptr) {
    for (int32_t e = 0; e < router.experts; ++e) choice[e] += router.choice_bias[e];
  }
  if (router.groups > 1) keep_groups(router, choice);
  for (int32_t i = 0; i < router.chosen; ++i) {
    expert[i] = pick(choice, router.experts, expert, i);
    choice[expert[i]] = kNever;
    weight[i] = scores[expert[i]];
  }
}

// Experts ascending, weights with them; few enough to insert one by one.
void sort_by_expert(int32_t* expert, float* weight, int32_t count) {
  for (int32_t i = 1; i < count; ++i) {
    const int32_t e = expert[i];
    const float w = weight[i];
    int32_t at = i;
    for (; at > 0 && expert[at - 1] > e; --at) expert[at] = expert[at - 1], weight[at] = weight[at - 1];
    expert[at] = e, weight[at] = w;
  }
}

}  // namespace

int64_t touched_experts(int64_t experts, int64_t chosen, int64_t rows) {
  const auto all = static_cast<double>(experts);
  const double missed = std::pow(1 - static_cast<double>(chosen) / all, static_cast<double>(rows));
  return std::clamp<int64_t>(std::llround(all * (1 - missed)), chosen, experts);
}

void route_row(const Router& router, const float* logits, int32_t* expert, float* weight, float* scores) {
  if (router.score == RouterScore::sparse_mixer) {
    mix_sparsely(router, logits, expert, weight, scores);
  } else {
    choose(router, logits, expert, weight, scores);
  }
  sort_by_expert(expert, weight, router.chosen);
  if (router.score == RouterScore::softmax_chosen) softmax(weight, router.chosen);
  float divisor = 1;
  if (router.normalise) {
    float sum = 0;
    for (int32_t i = 0; i < router.chosen; ++i) sum += weight[i];
    divisor = sum + router.epsilon;
  }
  for (int32_t i = 0; i < router.chosen; ++i) {
    weight[i] = weight[i] / divisor * router.scale;
    if (router.expert_scale != nullptr) weight[i] *= router.expert_scale[expert[i]];
  }
}

void sort_pairs(const Routing& routing) {
  std::fill_n(routing.first, routing.experts + 1, 0);
  for (int64_t i = 0; i < routing.pairs(); ++i) ++routing.first[routing.expert[i] + 1];
  for (int32_t e = 0; e < routing.experts; ++e) routing.first[e + 1] += routing.first[e];
  // first[e] counts up to where expert e ends, which is where the next begins; shifted back afterwards.
  for (int64_t i = 0; i < routing.pairs(); ++i) {
    const int32_t at = routing.first[routing.expert[i]]++;
    routing.place[i] = at;
    routing.row[at] = static_cast<int32_t>(i / routing.chosen);
  }
  for (int32_t e = routing.experts; e > 0; --e) routing.first[e] = routing.first[e - 1];
  routing.first[0] = 0;
}

}  // namespace millrace
