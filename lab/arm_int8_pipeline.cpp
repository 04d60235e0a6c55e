// Lab: the product of arm_int8_gemm.cpp (a factor per 32 inputs on both sides) as assembly that takes register
// allocation and order away from the compiler: four rows by eight outputs, the float arithmetic of a group spread over
// the matrix products of the next. One core of a Neoverse V1: 268 GOP/s at 8 rows x 2048 inputs, 278 at 64 (41.8 %),
// 230 to 250 at 5632 inputs, where weights come from the last cache; several panels at a time or shorter segments: no
// faster.
//   g++ -O3 -std=c++20 -march=armv8.4-a+dotprod+i8mm lab/arm_int8_pipeline.cpp -o /tmp/lab && /tmp/lab
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

// v0-7 totals [row pair][output pair], v8-15 integer sums, v16-23 sums of the group before as float, v24-27 weights,
// v28-29 rows, v30 factor product, v31 spare.
#define S(d, a, w) "smmla v" #d ".4s, v" #a ".16b, v" #w ".16b\n"
#define Z(d) "movi v" #d ".4s, #0\n"
#define C(t, d) "scvtf v" #t ".4s, v" #d ".4s\n"
#define M(w, a, s) "fmul v" #s ".4s, v" #w ".4s, v" #a ".4s\n"
#define A(t, f, s) "fmla v" #t ".4s, v" #f ".4s, v" #s ".4s\n"
#define STEP_LOADS(w, r)          \
  "ldp q28, q29, [%[rows], #" #r  \
  "]\n"                           \
  "ldp q24, q25, [%[panel], #" #w \
  "]\n"                           \
  "ldp q26, q27, [%[panel], #" #w " + 32]\n"
#define STEP_PLAIN \
  S(8, 28, 24) S(12, 29, 24) S(9, 28, 25) S(13, 29, 25) S(10, 28, 26) S(14, 29, 26) S(11, 28, 27) S(15, 29, 27)

__attribute__((noinline)) void pipelined(const std::byte* rows, const std::byte* panel, int64_t groups, float* sums,
                                         int64_t panel_stride, const std::byte* factors, int64_t factor_stride) {
  const std::byte* row_factors = rows;
  asm volatile(
      "ldp q0, q1, [%[sums]]\n"
      "ldp q2, q3, [%[sums], #32]\n"
      "ldp q4, q5, [%[sums], #64]\n"
      "ldp q6, q7, [%[sums], #96]\n"
      Z(8) Z(9) Z(10) Z(11) Z(12) Z(13) Z(14) Z(15)
      STEP_LOADS(0, 32) STEP_PLAIN
      STEP_LOADS(64, 64) STEP_PLAIN
      STEP_LOADS(128, 96) STEP_PLAIN
      STEP_LOADS(192, 128) STEP_PLAIN
      "add %[rows], %[rows], #160\n"
      "add %[panel], %[panel], %[panel_stride]\n"
      "subs %[groups], %[groups], #1\n"
      "b.eq 2f\n"
      "1:\n"
      STEP_LOADS(0, 32)
      C(16, 8) Z(8) S(8, 28, 24)
      C(20, 12) Z(12) S(12, 29, 24)
      C(17, 9) Z(9) S(9, 28, 25)
      C(21, 13) Z(13) S(13, 29, 25)
      C(18, 10) Z(10) S(10, 28, 26)
      C(22, 14) Z(14) S(14, 29, 26)
      C(19, 11) Z(11) S(11, 28, 27)
      C(23, 15) Z(15) S(15, 29, 27)
      STEP_LOADS(64, 64)
      "ldp q30, q31, [%[row_factors]]\n"
      S(8, 28, 24) S(12, 29, 24)
      "ldr q24, [%[factors]]\n"
      S(9, 28, 25) S(13, 29, 25)
      M(24, 30, 25) M(24, 31, 24)
      S(10, 28, 26) S(14, 29, 26)
      A(0, 16, 25) A(4, 20, 24)
      S(11, 28, 27) S(15, 29, 27)
      STEP_LOADS(128, 96)
      S(8, 28, 24) S(12, 29, 24)
      "ldr q24, [%[factors], #16]\n"
      S(9, 28, 25) S(13, 29, 25)
      M(24, 30, 25) M(24, 31, 24)
      S(10, 28, 26) S(14, 29, 26)
      A(1, 17, 25) A(5, 21, 24)
      "ldr q26, [%[factors], #32]\n"
      S(11, 28, 27) S(15, 29, 27)
      M(26, 30, 25) M(26, 31, 24)
      A(2, 18, 25) A(6, 22, 24)
      STEP_LOADS(192, 128)
      S(8, 28, 24) S(12, 29, 24)
      "ldr q24, [%[factors], #48]\n"
      S(9, 28, 25) S(13, 29, 25)
      M(24, 30, 25) M(24, 31, 24)
      S(10, 28, 26) S(14, 29, 26)
      A(3, 19, 25) A(7, 23, 24)
      S(11, 28, 27) S(15, 29, 27)
      "add %[row_factors], %[row_factors], #160\n"
      "add %[rows], %[rows], #160\n"
      "add %[factors], %[factors], %[factor_stride]\n"
      "add %[panel], %[panel], %[panel_stride]\n"
      "subs %[groups], %[groups], #1\n"
      "b.ne 1b\n"
      "2:\n"
      "ldp q30, q31, [%[row_factors]]\n"
      "ldp q24, q25, [%[factors]]\n"
      "ldp q26, q27, [%[factors], #32]\n"
      C(8, 8) C(9, 9) C(10, 10) C(11, 11) C(12, 12) C(13, 13) C(14, 14) C(15, 15)
      M(24, 30, 16) M(25, 30, 17) M(26, 30, 18) M(27, 30, 19)
      M(24, 31, 20) M(25, 31, 21) M(26, 31, 22) M(27, 31, 23)
      A(0, 8, 16) A(1, 9, 17) A(2, 10, 18) A(3, 11, 19) A(4, 12, 20) A(5, 13, 21) A(6, 14, 22) A(7, 15, 23)
      "stp q0, q1, [%[sums]]\n"
      "stp q2, q3, [%[sums], #32]\n"
      "stp q4, q5, [%[sums], #64]\n"
      "stp q6, q7, [%[sums], #96]\n"
      : [rows] "+&r"(rows), [panel] "+&r"(panel), [groups] "+&r"(groups), [row_factors] "+&r"(row_factors),
        [factors] "+&r"(factors)
      : [sums] "r"(sums), [panel_stride] "r"(panel_stride), [factor_stride] "r"(factor_stride)
      : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",
        "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30",
        "v31");
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Rows of `tokens` meet `together` panels at a time, in segments of inputs.
template <class F>
void measure(const char* name, int tokens, int inputs, int together, int segment, F product) {
  const int groups = inputs / 32, outputs = 1024, tiles = tokens / 4;
  std::vector<std::byte> rows(size_t(tiles) * groups * 160 + 64), panels(size_t(outputs / 8) * groups * 256 + 64);
  for (auto& b : rows) b = std::byte(std::rand() & 0x3f);
  for (auto& b : panels) b = std::byte(std::rand() & 0x3f);
  std::vector<float> sums(size_t(tiles) * 32 * together);
  std::vector<std::byte> factors(size_t(groups) * 64 * together + 64);
  double best = 1e9;
  for (int round = 0; round < 12; ++round) {
    double begin = seconds();
    for (int n = 0; n < outputs / 8; n += together) {
      for (int g = 0; g < groups; g += segment) {
        int count = std::min(segment, groups - g);
        for (int t = 0; t < tiles; ++t)
          for (int i = 0; i < together; ++i)
            product(&rows[(size_t(t) * groups + g) * 160], &panels[(size_t(n + i) * groups + g) * 256], count,
                    &sums[size_t(t * together + i) * 32], 256, &factors[(i * groups + g) * 64], 64);
      }
    }
    best = std::min(best, seconds() - begin);
  }
  double rate = 2.0 * tokens * outputs * inputs / best / 1e9;
  std::printf("%-12s %4d x %5d, %d panels, %3d groups %6.1f GOP/s  %4.1f %%\n", name, tokens, inputs, together, segment,
              rate, rate / 6.656);
}

}  // namespace

int main() {
  for (int inputs : {576, 2048, 5632})
    for (int tokens : {8, 16, 64})
      for (int together : {1, 2, 4})
        for (int segment : {32, 64, 128, 256}) {
          if (segment > inputs / 32 * 2) continue;
          measure("pipelined", tokens, inputs, together, segment, pipelined);
        }
}
