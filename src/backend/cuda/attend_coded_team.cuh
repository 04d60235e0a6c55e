// A team of four warps (attend_team.cuh) whose keys and values are codes, widened in registers between shared memory
// and the matrix instruction. Device code.
#pragma once

#include "backend/cuda/attend_codes.cuh"
#include "backend/cuda/attend_team.cuh"

namespace millrace::cuda {

template <int D>
struct CodedTeam : Team<__nv_bfloat16, D> {
  using Base = Team<__nv_bfloat16, D>;
  using Base::kKeys, Base::kKeyTiles, Base::kTiles, Base::kQueryPitch, Base::lane, Base::scores, Base::sums, Base::warp;
  static constexpr bool kPlain = false;
  const CodedKv& coded;
  uint32_t room;  // CodeRoom

  // Parted.
  __device__ static void put_query(uint32_t row, int i, const uint2& four) {
    const uint32_t first = row + static_cast<uint32_t>(i / 16 * 32 + i % 16);
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(first), "r"(four.x) : "memory");
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(first + 16), "r"(four.y) : "memory");
  }
  // A lane has four neighbours of every sixteen numbers, in two tiles: of even and of odd ones.
  __device__ static int column(int n) { return n / 2 * 16 + lane() % 4 * 4 + n % 2 * 2; }
  __device__ static float2 pair(const float (&of)[kTiles][4], int n, int r) {
    return {of[n & ~1][2 * r + n % 2], of[n | 1][2 * r + n % 2]};
  }

  // A factor for each of this lane's two positions of tile j.
  template <DType Kind>
  __device__ float2 factors(int at, int j) const {
    if constexpr (Kind == DType::q4_0) return {kMissing<Kind>, kMissing<Kind>};
    const float2 two = load_factors(room + static_cast<uint32_t>(at + (warp * kKeys + j * 8 + lane() % 4 * 2) * 4));
    return {two.x * kMissing<Kind>, two.y * kMissing<Kind>};
  }

  __device__ void multiply_keys(uint32_t keys) {
    by_code(coded.keys.type, [&](auto kind) {
      constexpr DType kKind = decltype(kind)::value;
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[j][i] = 0;
      }
      if constexpr (kKind == DType::q4_0)
        multiply_fours(keys);
      else
        multiply_bytes<kKind>(keys);
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
        const float2 each = factors<kKind>(CodeRoom<D>::kKeyFactorsAt, j);
        scores[j][0] *= each.x, scores[j][1] *= each.y, scores[j][2] *= each.x, scores[j][3] *= each.y;
      }
    });
  }
  __device__ uint32_t query() const {
    return this->queries + static_cast<uint32_t>(lane() % 16 * kQueryPitch + lane() / 16 * 16);
  }
  __device__ void multiply(int j, const uint4& q, uint32_t first, uint32_t second) {
    product<__nv_bfloat16>(scores[j], q, first, second);
  }
  template <DType Kind>
  __device__ void multiply_bytes(uint32_t keys) {
#pragma unroll
    for (int half = 0; half < D / 64; ++half) {
      uint4 b[kKeyTiles];
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j)
        b[j] = load_matrices(keys + piece_at<D>(warp * kKeys + j * 8 + lane() % 8, half * 4 + lane() / 8));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint4 q = load_matrices(query() + static_cast<uint32_t>((half * 4 + k) * 32));
#pragma unroll
        for (int j = 0; j < kKeyTiles; ++j) {
          const uint32_t word = ready<Kind>(k == 0 ? b[j].x : k == 1 ? b[j].y : k == 2 ? b[j].z : b[j].w);
          multiply(j, q, pair_of_codes<Kind, 0, 1>(word), pair_of_codes<Kind, 2, 3>(word));
        }
      }
    }
  }
  __device__ void multiply_fours(uint32_t keys) {
    const uint32_t row = keys + static_cast<uint32_t>((warp * kKeys + lane() / 4) * coded.keys.code_bytes);
#pragma unroll
    for (int group = 0; group < D / 32; ++group) {
      const uint4 low = load_matrices(query() + static_cast<uint32_t>(group * 64)),
                  high = load_matrices(query() + static_cast<uint32_t>(group * 64 + 32));
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
        const uint32_t from = row + static_cast<uint32_t>(j * 8 * coded.keys.code_bytes + group * 18),
                       at = from + 2 + static_cast<uint32_t>(lane() % 4 * 4);
        const uint32_t factor = load_half_word(from), word = load_half_word(at) | load_half_word(at + 2) << 16;
        const __nv_bfloat162 both = factors_of_fours(factor, factor), less = less_of_fours(both);
        const uint32_t first = word & kLowFours, second = word >> 4 & kLowFours;
        multiply(j, low, pair_of_fours<0, 1>(first, both, less), pair_of_fours<2, 3>(first, both, less));
        multiply(j, high, pair_of_fours<0, 1>(second, both, less), pair_of_fours<2, 3>(second, both, less));
      }
    }
  }

  __device__ void weigh(int start, const Sight (&sight)[2], const Attention& attention, bool shapes) {
    const unsigned width = static_cast<unsigned>(sight[0].end - sight[0].begin);
    const bool all = sight[0].all(start);
    const int first = start + warp * kKeys + lane() % 4 * 2 - sight[0].begin;
    by_code(coded.values.type, [&](auto kind) {
      Base::weigh(start, sight, attention, shapes, [&](int j) {
        float2 each = factors<decltype(kind)::value>(CodeRoom<D>::kValueFactorsAt, j);
        if (!all) {  // others may never have been written
          if (static_cast<unsigned>(first + j * 8) >= width) each.x = 0;
          if (static_cast<unsigned>(first + j * 8 + 1) >= width) each.y = 0;
        }
        return each;
      });
    });
  }

  // Outside of these positions factors of four bits may be no numbers: nothing was written there. All bytes are
  // numbers.
  __device__ void clear_values(uint32_t values, int from, int to) const {
    if (coded.values.type != DType::q4_0) return;
    for (int i = warp * 32 + lane(); i < kChunk * (D / 32); i += kTeamThreads) {
      const int position = i / (D / 32);
      if (position >= from && position < to) continue;
      const uint32_t place = values + static_cast<uint32_t>(position * coded.values.code_bytes + i % (D / 32) * 18);
      asm volatile("st.shared.u16 [%0], %1;" ::"r"(place), "h"(static_cast<uint16_t>(0)) : "memory");
    }
    this->sync();
  }
  __device__ void multiply_values(uint32_t values) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
    }
    by_code(coded.values.type, [&](auto kind) {
      constexpr DType kKind = decltype(kind)::value;
      if constexpr (kKind == DType::q4_0)
        add_fours(values);
      else
        add_bytes<kKind>(values);
    });
  }
  __device__ uint32_t weights() const {
    return shared_address(this->exchange.weights) +
           static_cast<uint32_t>(lane() % 16 * Exchange::kPitch + lane() / 16 * 16);
  }
  // Sixteen positions times sixteen numbers: even ones and odd ones.
  template <DType Kind>
  __device__ void add_piece(int n, const uint4& p, uint32_t first, uint32_t second) {
    first = ready<Kind>(first), second = ready<Kind>(second);
    product<__nv_bfloat16>(sums[n], p, pair_of_codes<Kind, 0, 2>(first), pair_of_codes<Kind, 0, 2>(second));
    product<__nv_bfloat16>(sums[n + 1], p, pair_of_codes<Kind, 1, 3>(first), pair_of_codes<Kind, 1, 3>(second));
  }
  template <DType Kind>
  __device__ void add_bytes(uint32_t values) {
    constexpr int kSteps = D == 128 ? 1 : 2;  // of sixteen positions, whose codes are loaded together
#pragma unroll 2
    for (int k = 0; k < kChunk / 16; k += kSteps) {
      const int position = k * 16 + (D == 128 ? lane() % 16 : lane()), piece = D == 128 ? warp * 2 + lane() / 16 : warp;
      const uint4 b = load_matrices_turned(values + piece_at<D>(position, piece));
      const uint4 p = load_matrices(weights() + static_cast<uint32_t>(k * 32));
      add_piece<Kind>(0, p, b.x, b.y);
      if constexpr (D == 128) {
        add_piece<Kind>(2, p, b.z, b.w);
      } else {
        add_piece<Kind>(0, load_matrices(weights() + static_cast<uint32_t>(k * 32 + 32)), b.z, b.w);
      }
    }
  }
  __device__ void add_fours(uint32_t values) {
    const int group = D == 128 ? warp : warp / 2, bytes = coded.values.code_bytes;
    const uint32_t from = values + static_cast<uint32_t>(lane() % 4 * 2 * bytes + group * 18),
                   at = from + 2 + static_cast<uint32_t>(lane() / 4 * 2);
#pragma unroll 2
    for (int k = 0; k < kChunk / 16; ++k) {
      const uint4 p = load_matrices(weights() + static_cast<uint32_t>(k * 32));
      uint32_t low[2], high[2];
      __nv_bfloat162 both[2], less[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t one = static_cast<uint32_t>((k * 16 + 8 * i) * bytes), next = one + static_cast<uint32_t>(bytes);
        both[i] = factors_of_fours(load_half_word(from + one), load_half_word(from + next));
        less[i] = less_of_fours(both[i]);
        const uint32_t word = load_half_word(at + one) | load_half_word(at + next) << 16;
        low[i] = word & kLowFours, high[i] = word >> 4 & kLowFours;
      }
      auto add = [&](int n, const uint32_t(&of)[2]) {
        product<__nv_bfloat16>(sums[n], p, pair_of_fours<0, 2>(of[0], both[0], less[0]),
                               pair_of_fours<0, 2>(of[1], both[1], less[1]));
        product<__nv_bfloat16>(sums[n + 1], p, pair_of_fours<1, 3>(of[0], both[0], less[0]),
                               pair_of_fours<1, 3>(of[1], both[1], less[1]));
      };
      if constexpr (D == 128) {
        add(0, low);
        add(2, high);
      } else if (warp % 2 == 0) {
        add(0, low);
      } else {
        add(0, high);
      }
    }
  }
};

}  // namespace millrace::cuda
