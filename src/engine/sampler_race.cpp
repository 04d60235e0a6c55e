#include <algorithm>
#include <bit>
#include <limits>

#include "backend/shortlist_math.h"
#include "engine/sampler_scan.h"

namespace millrace {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr size_t kTile = 64;  // tokens looked at together

struct Scale {
  float largest, inverse_temperature;
};

struct Tile {
  double u[kTile], weight[kTile];
};

// Random numbers and weights of 64 tokens, and whose arrival may be as early as `bar`, a bit each. Most of what a draw
// over a vocabulary takes: compiled once for each width of vectors, the same to the bit.
[[gnu::always_inline]] inline uint64_t draw_tile(const float* values, Scale scale, const Draw& first, double bar,
                                                 Tile& out) {
  const auto words = philox_words<kTile>(first.seed, first.choice, first.position, first.draw);
  for (size_t i = 0; i < kTile; ++i) out.u[i] = to_unit(words.high[i], words.low[i]);
  for (size_t i = 0; i < kTile; ++i) {
    const float weight = exp_below((values[i] - scale.largest) * scale.inverse_temperature);
    out.weight[i] = static_cast<double>(weight) * 1.0001 + 1e-37;
  }
  uint8_t near[kTile];
  for (size_t i = 0; i < kTile; ++i) near[i] = static_cast<uint8_t>(out.u[i] <= bar * out.weight[i]);
  uint64_t mask = 0;
  for (size_t i = 0; i < kTile; ++i) mask |= uint64_t{near[i]} << i;
  return mask;
}

using DrawTile = uint64_t (*)(const float* values, Scale scale, const Draw& first, double bar, Tile& out);

[[gnu::flatten]] uint64_t draw_tile_of_16(const float* values, Scale scale, const Draw& first, double bar, Tile& out) {
  return draw_tile(values, scale, first, bar, out);
}

#if defined(__x86_64__)
#if defined(__clang__)  // takes the widest there are
#define MILLRACE_WIDEST_VECTORS "avx512f,avx512dq,avx512vl,avx512bw"
#else
#define MILLRACE_WIDEST_VECTORS "avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512"
#endif
[[gnu::target("avx2"), gnu::flatten]] uint64_t draw_tile_of_32(const float* values, Scale scale, const Draw& first,
                                                               double bar, Tile& out) {
  return draw_tile(values, scale, first, bar, out);
}
[[gnu::target(MILLRACE_WIDEST_VECTORS), gnu::flatten]] uint64_t draw_tile_of_64(const float* values, Scale scale,
                                                                                const Draw& first, double bar,
                                                                                Tile& out) {
  return draw_tile(values, scale, first, bar, out);
}
#endif

struct Width {
  int bytes;
  DrawTile draw;
};

// The widths that this processor has, the widest last.
std::vector<Width> widths() {
  std::vector<Width> all{{16, draw_tile_of_16}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0) all.push_back({32, draw_tile_of_32});
  if (__builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512bw") != 0)
    all.push_back({64, draw_tile_of_64});
#endif
  return all;
}

const std::vector<Width>& known_widths() {
  static const std::vector<Width> all = widths();
  return all;
}

}  // namespace

std::vector<int> race_widths() {
  std::vector<int> all;
  for (const Width& width : known_widths()) all.push_back(width.bytes);
  return all;
}

void race_candidates(std::span<const float> logits, float largest, float inverse_temperature, const Draw& draw,
                     std::vector<Candidate>& out, int width) {
  const std::vector<Width>& known = known_widths();
  const auto asked = std::find_if(known.begin(), known.end(), [&](const Width& w) { return w.bytes == width; });
  const DrawTile draw_tile = asked == known.end() ? known.back().draw : asked->draw;
  out.clear();
  // u <= -log(1 - u), so u / w bounds an arrival from below, and u / (1 - u) / w from above. Nobody whose lower bound
  // is after the smallest upper bound so far can win; the factors cover the roughness of exp_below.
  double bar = std::numeric_limits<double>::infinity();
  Tile tile;
  float rest[kTile];
  for (size_t first = 0; first < logits.size(); first += kTile) {
    const float* values = logits.data() + first;
    if (logits.size() - first < kTile) {
      std::fill_n(rest, kTile, kNever);
      std::copy(logits.begin() + static_cast<ptrdiff_t>(first), logits.end(), rest);
      values = rest;
    }
    Draw from = draw;
    from.draw = static_cast<uint32_t>(first);
    uint64_t mask = draw_tile(values, {largest, inverse_temperature}, from, bar, tile);
    for (; mask != 0; mask &= mask - 1) {
      const auto i = static_cast<size_t>(std::countr_zero(mask));
      const double u = tile.u[i], weight = tile.weight[i];
      if (!(u <= bar * weight) || values[i] == kNever) continue;
      out.push_back({static_cast<Token>(first + i), values[i]});
      if (weight > 1e-30) bar = std::min(bar, u / (1 - u) / weight * 1.0003);
    }
  }
}

}  // namespace millrace
