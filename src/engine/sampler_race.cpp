#include <algorithm>
#include <bit>
#include <limits>

#include "backend/shortlist_math.h"
#include "engine/sampler_scan.h"

namespace millrace {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr size_t kBlock = 64;  // tokens looked at together

struct Scale {
  float largest, inverse_temperature;
};

struct Block {
  double u[kBlock], weight[kBlock];
};

// Random numbers and weights of 64 tokens, and whose arrival may be as early as `bar`, a bit each. Most of what a draw
// over a vocabulary takes: compiled once for each width of vectors, the same to the bit.
[[gnu::always_inline]] inline uint64_t draw_block(const float* values, Scale scale, const Draw& first, double bar,
                                                  Block& out) {
  const auto words = philox_words<kBlock>(first.seed, first.choice, first.position, first.draw);
  for (size_t i = 0; i < kBlock; ++i)
    out.u[i] =
        static_cast<double>(static_cast<int64_t>((uint64_t{words.high[i]} << 32 | words.low[i]) >> 11)) * 0x1p-53;
  for (size_t i = 0; i < kBlock; ++i) {
    const float weight = exp_below((values[i] - scale.largest) * scale.inverse_temperature);
    out.weight[i] = static_cast<double>(weight) * 1.0001 + 1e-37;
  }
  uint8_t near[kBlock];
  for (size_t i = 0; i < kBlock; ++i) near[i] = static_cast<uint8_t>(out.u[i] <= bar * out.weight[i]);
  uint64_t mask = 0;
  for (size_t i = 0; i < kBlock; ++i) mask |= uint64_t{near[i]} << i;
  return mask;
}

using DrawBlock = uint64_t (*)(const float* values, Scale scale, const Draw& first, double bar, Block& out);

[[gnu::flatten]] uint64_t draw_block_of_16(const float* values, Scale scale, const Draw& first, double bar,
                                           Block& out) {
  return draw_block(values, scale, first, bar, out);
}

#if defined(__x86_64__)
#if defined(__clang__)  // takes the widest there are
#define MILLRACE_WIDEST_VECTORS "avx512f,avx512dq,avx512vl,avx512bw"
#else
#define MILLRACE_WIDEST_VECTORS "avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512"
#endif
[[gnu::target("avx2"), gnu::flatten]] uint64_t draw_block_of_32(const float* values, Scale scale, const Draw& first,
                                                                double bar, Block& out) {
  return draw_block(values, scale, first, bar, out);
}
[[gnu::target(MILLRACE_WIDEST_VECTORS), gnu::flatten]] uint64_t draw_block_of_64(const float* values, Scale scale,
                                                                                 const Draw& first, double bar,
                                                                                 Block& out) {
  return draw_block(values, scale, first, bar, out);
}
#endif

DrawBlock best_draw_block() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512bw") != 0)
    return draw_block_of_64;
  if (__builtin_cpu_supports("avx2") != 0) return draw_block_of_32;
#endif
  return draw_block_of_16;
}

}  // namespace

void race_candidates(std::span<const float> logits, float largest, float inverse_temperature, const Draw& draw,
                     std::vector<Candidate>& out) {
  static const DrawBlock draw_block = best_draw_block();
  out.clear();
  // u <= -log(1 - u), so u / w bounds an arrival from below, and u / (1 - u) / w from above. Nobody whose lower bound
  // is after the smallest upper bound so far can win; the factors cover the roughness of exp_below.
  double bar = std::numeric_limits<double>::infinity();
  Block block;
  float rest[kBlock];
  for (size_t first = 0; first < logits.size(); first += kBlock) {
    const float* values = logits.data() + first;
    if (logits.size() - first < kBlock) {
      std::fill_n(rest, kBlock, kNever);
      std::copy(logits.begin() + static_cast<ptrdiff_t>(first), logits.end(), rest);
      values = rest;
    }
    Draw from = draw;
    from.draw = static_cast<uint32_t>(first);
    uint64_t mask = draw_block(values, {largest, inverse_temperature}, from, bar, block);
    for (; mask != 0; mask &= mask - 1) {
      const auto i = static_cast<size_t>(std::countr_zero(mask));
      const double u = block.u[i], weight = block.weight[i];
      if (!(u <= bar * weight) || values[i] == kNever) continue;
      out.push_back({static_cast<Token>(first + i), values[i]});
      if (weight > 1e-30) bar = std::min(bar, u / (1 - u) / weight * 1.0003);
    }
  }
}

}  // namespace millrace
