// Lab: int8 products with one float scale per 32 values on both sides (Q8_0 weights, activations quantised per row),
// i8mm.
//   clang++ -O3 -std=c++20 -march=armv8.4-a+dotprod+i8mm+bf16+fp16 -ffp-contract=off lab/arm_int8_gemm.cpp -o /tmp/lab
//   && /tmp/lab
//
// One core of a Neoverse V1, clang 14 (g++ 12 in brackets), GOP/s and share of the SMMLA ceiling of 665:
//   integers            323  49 %  (311)  no scales; eight accumulators wait for their own latency of four cycles
//   sub-scales          303  46 %  (264)  integer scale per group (K-quants): one MLA a tile
//   sub-scales 8x6      335  50 %  (298)
//   convert             253  38 %  (212)  SCVTF, FMUL, FMLA; a zero accumulator costs nothing to start
//   convert, one scale  267  40 %         row scale applied once at the end instead of per group
//   magic               230  35 %  (208)  starts at the bits of 2^23 + 2^22, FSUB instead of SCVTF: the start costs a
//   MOV convert 8x6         221  33 %  (211) magic 8x6           247  37 %  (210)
#include <arm_neon.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

// Eight weight rows by 32 inputs: for each eight inputs, the four row pairs one after the other, as SMMLA wants them.
struct WeightTile {
  __fp16 scale[8];
  int8_t values[256];
};
// Activation rows by 32 inputs, in pairs; scales stand twice each (m0 m0 m1 m1 ...) as the result tile has them.
template <int kRows>
struct RowTile {
  float scale[kRows * 2];
  int8_t values[kRows * 32];
};

alignas(16) const float kMagic[4] = {12582912.f, 12582912.f, 12582912.f, 12582912.f};

float32x4_t from_memory(const float* address) {
  float32x4_t value;
  asm("ldr %q0, [%1]" : "=w"(value) : "r"(address));
  return value;
}

enum class Finish { integers, sub_scales, convert, convert_once, magic };

template <Finish kFinish, int kRows>
__attribute__((noinline)) void product(const WeightTile* weights, const float* weight_scales,
                                       const RowTile<kRows>* rows, int groups, float* out, long stride) {
  constexpr int kPairs = kRows / 2;
  float32x4_t sum[kPairs][4];
  int32x4_t running[kPairs][4];
  for (auto& pair : sum)
    for (auto& tile : pair) tile = vdupq_n_f32(0);
  for (auto& pair : running)
    for (auto& tile : pair) tile = vdupq_n_s32(0);
  const float32x4_t magic = from_memory(kMagic);
  const int32x4_t start = kFinish == Finish::magic ? vreinterpretq_s32_f32(magic) : vdupq_n_s32(0);
  for (int g = 0; g < groups; ++g) {
    int32x4_t dot[kPairs][4];
#pragma GCC unroll 4
    for (int m = 0; m < kPairs; ++m)
      for (int n = 0; n < 4; ++n) dot[m][n] = kFinish == Finish::integers ? running[m][n] : start;
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) {
        int8x16_t weight = vld1q_s8(weights[g].values + (k * 4 + n) * 16);
#pragma GCC unroll 4
        for (int m = 0; m < kPairs; ++m)
          dot[m][n] = vmmlaq_s32(dot[m][n], vld1q_s8(rows[g].values + (k * kPairs + m) * 16), weight);
      }
    }
#pragma GCC unroll 4
    for (int m = 0; m < kPairs; ++m) {
      float32x4_t row_scale = vld1q_f32(rows[g].scale + m * 4);
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) {
        float32x4_t scale = vld1q_f32(weight_scales + g * 16 + n * 4);
        if constexpr (kFinish == Finish::integers) running[m][n] = dot[m][n];
        if constexpr (kFinish == Finish::sub_scales)
          running[m][n] = vmlaq_s32(running[m][n], dot[m][n], vreinterpretq_s32_f32(scale));
        if constexpr (kFinish == Finish::convert)
          sum[m][n] = vfmaq_f32(sum[m][n], vcvtq_f32_s32(dot[m][n]), vmulq_f32(scale, row_scale));
        if constexpr (kFinish == Finish::convert_once)
          sum[m][n] = vfmaq_f32(sum[m][n], vcvtq_f32_s32(dot[m][n]), scale);
        if constexpr (kFinish == Finish::magic) {
          float32x4_t value = vsubq_f32(vreinterpretq_f32_s32(dot[m][n]), magic);
          sum[m][n] = vfmaq_f32(sum[m][n], vmulq_f32(value, row_scale), scale);
        }
      }
    }
  }
  for (int m = 0; m < kPairs; ++m) {
    for (int n = 0; n < 4; ++n) {
      sum[m][n] = vaddq_f32(sum[m][n], vcvtq_f32_s32(running[m][n]));
      vst1_f32(out + 2 * m * stride + 2 * n, vget_low_f32(sum[m][n]));
      vst1_f32(out + (2 * m + 1) * stride + 2 * n, vget_high_f32(sum[m][n]));
    }
  }
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <Finish kFinish, int kRows>
void measure(const char* name) {
  constexpr int kInputs = 2048, kGroups = kInputs / 32, kOutputs = 2048, kTokens = 240;
  std::vector<WeightTile> weights(size_t{kOutputs / 8} * kGroups);
  for (auto& tile : weights)
    for (auto& value : tile.values) value = static_cast<int8_t>(std::rand() % 255 - 127);
  std::vector<RowTile<kRows>> rows(size_t{kTokens / kRows} * kGroups);
  for (auto& tile : rows)
    for (auto& value : tile.values) value = static_cast<int8_t>(std::rand() % 255 - 127);
  std::vector<float> scales(kGroups * 16, 1e-3f), out(size_t{kTokens} * kOutputs);
  double best = 1e9;
  for (int round = 0; round < 12; ++round) {
    double begin = seconds();
    for (int n = 0; n < kOutputs / 8; ++n) {
      for (int m = 0; m < kTokens / kRows; ++m) {
        product<kFinish, kRows>(&weights[size_t(n) * kGroups], scales.data(), &rows[size_t(m) * kGroups], kGroups,
                                &out[size_t(m) * kRows * kOutputs + size_t(n) * 8], kOutputs);
      }
    }
    best = std::min(best, seconds() - begin);
  }
  double rate = 2.0 * kTokens * kOutputs * kInputs / best / 1e9;
  std::printf("%-18s %6.1f GOP/s  %4.1f %%\n", name, rate, rate / 6.656);
}

}  // namespace

int main() {
  measure<Finish::integers, 4>("integers");
  measure<Finish::sub_scales, 4>("sub-scales");
  measure<Finish::convert, 4>("convert");
  measure<Finish::convert_once, 4>("convert, one scale");
  measure<Finish::magic, 4>("magic");
  measure<Finish::sub_scales, 6>("sub-scales 8x6");
  measure<Finish::convert, 6>("convert 8x6");
  measure<Finish::magic, 6>("magic 8x6");
}
