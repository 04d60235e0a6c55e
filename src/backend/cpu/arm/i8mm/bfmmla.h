// The inner loops of attention for two pairs of queries, in assembly: sixteen sums stay in registers, every operand is
// loaded once (g++ 12 spills sums). Only the kernels of this folder include it; any worker calls it.
//
// Both loops take two pairs and sixteen columns a step: 32 bytes of the pairs, 128 bytes of the cache. They ask for two
// kinds of lines on the way, evenly, because what is asked for in a hurry is dropped: the run of the cache that is read
// next, into the first cache; and three pieces of what is read later for every sixteen steps, into the second.
#pragma once

#include "backend/cpu/arm/simd.h"
#include "backend/cpu/kernels.h"

namespace millrace::cpu {
namespace {

// [pair][columns / 2]: rows of a pair by two columns, row after row.
struct Sums {
  float32x4_t of[2][8];
};

constexpr int32_t kPiecesPerSixteen = 3;
static_assert(Ahead::kPiece == 512);

// One piece, into the second cache.
inline void ask_for(const std::byte* piece) {
#pragma GCC unroll 8
  for (int32_t at = 0; at < Ahead::kPiece; at += 64) __builtin_prefetch(piece + at, 0, 2);
}

// clang-format off
#define MILLRACE_NONE \
  "movi %[a0].4s, #0\n" "movi %[a1].4s, #0\n" "movi %[a2].4s, #0\n" "movi %[a3].4s, #0\n" \
  "movi %[a4].4s, #0\n" "movi %[a5].4s, #0\n" "movi %[a6].4s, #0\n" "movi %[a7].4s, #0\n" \
  "movi %[b0].4s, #0\n" "movi %[b1].4s, #0\n" "movi %[b2].4s, #0\n" "movi %[b3].4s, #0\n" \
  "movi %[b4].4s, #0\n" "movi %[b5].4s, #0\n" "movi %[b6].4s, #0\n" "movi %[b7].4s, #0\n"
#define MILLRACE_SUMS(sums) \
  [a0] "=&w"(sums.of[0][0]), [a1] "=&w"(sums.of[0][1]), [a2] "=&w"(sums.of[0][2]), [a3] "=&w"(sums.of[0][3]), \
  [a4] "=&w"(sums.of[0][4]), [a5] "=&w"(sums.of[0][5]), [a6] "=&w"(sums.of[0][6]), [a7] "=&w"(sums.of[0][7]), \
  [b0] "=&w"(sums.of[1][0]), [b1] "=&w"(sums.of[1][1]), [b2] "=&w"(sums.of[1][2]), [b3] "=&w"(sums.of[1][3]), \
  [b4] "=&w"(sums.of[1][4]), [b5] "=&w"(sums.of[1][5]), [b6] "=&w"(sums.of[1][6]), [b7] "=&w"(sums.of[1][7])
#define MILLRACE_TAKEN \
  "cc", "memory", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25"

#define MILLRACE_MULTIPLY \
  "bfmmla %[a0].4s, v16.8h, v18.8h\n" \
  "bfmmla %[b0].4s, v17.8h, v18.8h\n" \
  "bfmmla %[a1].4s, v16.8h, v19.8h\n" \
  "bfmmla %[b1].4s, v17.8h, v19.8h\n" \
  "bfmmla %[a2].4s, v16.8h, v20.8h\n" \
  "bfmmla %[b2].4s, v17.8h, v20.8h\n" \
  "bfmmla %[a3].4s, v16.8h, v21.8h\n" \
  "bfmmla %[b3].4s, v17.8h, v21.8h\n" \
  "bfmmla %[a4].4s, v16.8h, v22.8h\n" \
  "bfmmla %[b4].4s, v17.8h, v22.8h\n" \
  "bfmmla %[a5].4s, v16.8h, v23.8h\n" \
  "bfmmla %[b5].4s, v17.8h, v23.8h\n" \
  "bfmmla %[a6].4s, v16.8h, v24.8h\n" \
  "bfmmla %[b6].4s, v17.8h, v24.8h\n" \
  "bfmmla %[a7].4s, v16.8h, v25.8h\n" \
  "bfmmla %[b7].4s, v17.8h, v25.8h\n"
#define MILLRACE_STEP(pairs, eight, at, other, from, soon, later) \
  "ldp q16, q17, [%[pair], #" #pairs "]\n" \
  "ldp q18, q19, [%[" #eight "], #" #at "]\n" \
  "ldp q20, q21, [%[" #eight "], #" #at " + 32]\n" \
  "ldp q22, q23, [%[" #other "], #" #from "]\n" \
  "ldp q24, q25, [%[" #other "], #" #from " + 32]\n" \
  "prfm pldl1keep, [%[" #soon "], #" #at "]\n" \
  "prfm pldl1keep, [%[" #later "], #" #from "]\n" \
  MILLRACE_MULTIPLY
#define MILLRACE_KEYS(pairs, at) MILLRACE_STEP(pairs, first, at, second, at, next, after)
#define MILLRACE_VALUES(pairs, at, from) MILLRACE_STEP(pairs, run, at, run, from, next, next)
#define MILLRACE_RUN \
  "ldr %[run], [%[values]], #8\n" \
  "ldr %[next], [%[values]]\n" \
  "add %[run], %[run], %[place]\n" \
  "add %[next], %[next], %[place]\n"
#define MILLRACE_PIECE "ldr %[line], [%[pieces]], #8\n"
#define MILLRACE_LINE(at) "prfm pldl2keep, [%[line], #" #at "]\n"

// Sixteen keys, eight at `first` and eight `apart` from them: [steps][8][4]; sixteen more at `next` are read soon.
// pairs: [steps][2][2][4]; steps a multiple of 16.
[[gnu::always_inline]] inline Sums score_sixteen(const std::byte* first, const std::byte* next, int64_t apart,
                                                 const std::byte* pairs, int64_t steps,
                                                 const std::byte* const* pieces) {
  Sums sums;
  const std::byte *second, *after, *line;
  asm volatile(
      MILLRACE_NONE
      "1:\n"
      "add %[second], %[first], %[apart]\n"
      "add %[after], %[next], %[apart]\n"
      MILLRACE_PIECE MILLRACE_LINE(0) MILLRACE_KEYS(0, 0)
      MILLRACE_LINE(64) MILLRACE_LINE(128) MILLRACE_KEYS(32, 64)
      MILLRACE_LINE(192) MILLRACE_KEYS(64, 128)
      MILLRACE_LINE(256) MILLRACE_LINE(320) MILLRACE_KEYS(96, 192)
      MILLRACE_LINE(384) MILLRACE_KEYS(128, 256)
      MILLRACE_LINE(448) MILLRACE_PIECE MILLRACE_LINE(0) MILLRACE_KEYS(160, 320)
      MILLRACE_LINE(64) MILLRACE_KEYS(192, 384)
      MILLRACE_LINE(128) MILLRACE_LINE(192) MILLRACE_KEYS(224, 448)
      MILLRACE_LINE(256) MILLRACE_KEYS(256, 512)
      MILLRACE_LINE(320) MILLRACE_LINE(384) MILLRACE_KEYS(288, 576)
      MILLRACE_LINE(448) MILLRACE_KEYS(320, 640)
      MILLRACE_PIECE MILLRACE_LINE(0) MILLRACE_LINE(64) MILLRACE_KEYS(352, 704)
      MILLRACE_LINE(128) MILLRACE_KEYS(384, 768)
      MILLRACE_LINE(192) MILLRACE_LINE(256) MILLRACE_KEYS(416, 832)
      MILLRACE_LINE(320) MILLRACE_KEYS(448, 896)
      MILLRACE_LINE(384) MILLRACE_LINE(448) MILLRACE_KEYS(480, 960)
      "add %[pair], %[pair], #512\n"
      "add %[first], %[first], #1024\n"
      "add %[next], %[next], #1024\n"
      "subs %[steps], %[steps], #16\n"
      "b.gt 1b\n"
      : MILLRACE_SUMS(sums), [first] "+&r"(first), [next] "+&r"(next), [pair] "+&r"(pairs), [steps] "+&r"(steps),
        [pieces] "+&r"(pieces), [second] "=&r"(second), [after] "=&r"(after), [line] "=&r"(line)
      : [apart] "r"(apart)
      : MILLRACE_TAKEN);
  return sums;
}

// Sixteen dimensions of values: runs of sixteen tokens that start `place` after values[i], [4 fours][16][4]; runs a
// multiple of 4, and values[runs] is where to read after them. pairs: [4 * runs][2][2][4].
[[gnu::always_inline]] inline Sums weigh_sixteen(const std::byte* const* values, int64_t place, int64_t runs,
                                                 const std::byte* pairs, const std::byte* const* pieces) {
  Sums sums;
  const std::byte *run, *next, *line;
  asm volatile(
      MILLRACE_NONE
      "1:\n"
      MILLRACE_RUN
      MILLRACE_PIECE MILLRACE_LINE(0) MILLRACE_VALUES(0, 0, 64)
      MILLRACE_LINE(64) MILLRACE_LINE(128) MILLRACE_VALUES(32, 128, 192)
      MILLRACE_LINE(192) MILLRACE_VALUES(64, 256, 320)
      MILLRACE_LINE(256) MILLRACE_LINE(320) MILLRACE_VALUES(96, 384, 448)
      MILLRACE_RUN
      MILLRACE_LINE(384) MILLRACE_VALUES(128, 0, 64)
      MILLRACE_LINE(448) MILLRACE_PIECE MILLRACE_LINE(0) MILLRACE_VALUES(160, 128, 192)
      MILLRACE_LINE(64) MILLRACE_VALUES(192, 256, 320)
      MILLRACE_LINE(128) MILLRACE_LINE(192) MILLRACE_VALUES(224, 384, 448)
      MILLRACE_RUN
      MILLRACE_LINE(256) MILLRACE_VALUES(256, 0, 64)
      MILLRACE_LINE(320) MILLRACE_LINE(384) MILLRACE_VALUES(288, 128, 192)
      MILLRACE_LINE(448) MILLRACE_VALUES(320, 256, 320)
      MILLRACE_PIECE MILLRACE_LINE(0) MILLRACE_LINE(64) MILLRACE_VALUES(352, 384, 448)
      MILLRACE_RUN
      MILLRACE_LINE(128) MILLRACE_VALUES(384, 0, 64)
      MILLRACE_LINE(192) MILLRACE_LINE(256) MILLRACE_VALUES(416, 128, 192)
      MILLRACE_LINE(320) MILLRACE_VALUES(448, 256, 320)
      MILLRACE_LINE(384) MILLRACE_LINE(448) MILLRACE_VALUES(480, 384, 448)
      "add %[pair], %[pair], #512\n"
      "subs %[runs], %[runs], #4\n"
      "b.gt 1b\n"
      : MILLRACE_SUMS(sums), [values] "+&r"(values), [pair] "+&r"(pairs), [runs] "+&r"(runs), [pieces] "+&r"(pieces),
        [run] "=&r"(run), [next] "=&r"(next), [line] "=&r"(line)
      : [place] "r"(place)
      : MILLRACE_TAKEN);
  return sums;
}
// clang-format on

#undef MILLRACE_NONE
#undef MILLRACE_SUMS
#undef MILLRACE_TAKEN
#undef MILLRACE_MULTIPLY
#undef MILLRACE_STEP
#undef MILLRACE_KEYS
#undef MILLRACE_VALUES
#undef MILLRACE_RUN
#undef MILLRACE_PIECE
#undef MILLRACE_LINE

}  // namespace
}  // namespace millrace::cpu
