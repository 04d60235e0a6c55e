// The inner loops of attention for two pairs of queries, in assembly: sixteen sums stay in registers, every operand is
// loaded once, and lines that are needed later are asked for as evenly as lines are read. (g++ 12 spills sums and
// gathers the requests.) Only the kernels of this folder include it.
//
// Both loops take two pairs and sixteen columns a step: 32 bytes of the pairs, 128 bytes of the cache, and ask for two
// lines of 64 bytes. Four steps take one piece of Ahead.
#pragma once

#include "backend/cpu/arm/simd.h"
#include "backend/cpu/kernels.h"

namespace millrace::cpu {
namespace {

// [pair][columns / 2]: rows of a pair by two columns, row after row.
struct Sums {
  float32x4_t of[2][8];
};

// Pieces asked for while sixteen steps are computed.
constexpr int32_t kPiecesPerSixteen = 3;
static_assert(Ahead::kPiece == 512);

// One piece, into the second cache.
inline void ask_for(const std::byte* piece) {
#pragma GCC unroll 8
  for (int32_t at = 0; at < Ahead::kPiece; at += 64) __builtin_prefetch(piece + at, 0, 2);
}

#define MILLRACE_MULTIPLY             \
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

#define MILLRACE_STEP(pairs, eight, at, other, from) \
  "ldp q16, q17, [%[pair], #" #pairs                 \
  "]\n"                                              \
  "ldp q18, q19, [%[" #eight "], #" #at              \
  "]\n"                                              \
  "ldp q20, q21, [%[" #eight "], #" #at              \
  " + 32]\n"                                         \
  "ldp q22, q23, [%[" #other "], #" #from            \
  "]\n"                                              \
  "ldp q24, q25, [%[" #other "], #" #from " + 32]\n" MILLRACE_MULTIPLY

#define MILLRACE_PIECE "ldr %[line], [%[pieces]], #8\n"
#define MILLRACE_LINE(at) "prfm pldl2keep, [%[line], #" #at "]\n"

#define MILLRACE_NONE                                                                                              \
  "movi %[a0].4s, #0\nmovi %[a1].4s, #0\nmovi %[a2].4s, #0\nmovi %[a3].4s, #0\nmovi %[a4].4s, #0\nmovi %[a5].4s, " \
  "#0\nmovi %[a6].4s, #0\nmovi %[a7].4s, #0\nmovi %[b0].4s, #0\nmovi %[b1].4s, #0\nmovi %[b2].4s, #0\nmovi "       \
  "%[b3].4s, #0\nmovi %[b4].4s, #0\nmovi %[b5].4s, #0\nmovi %[b6].4s, #0\nmovi %[b7].4s, #0\n"

#define MILLRACE_SUMS(sums)                                                                                       \
  [a0] "=&w"(sums.of[0][0]), [a1] "=&w"(sums.of[0][1]), [a2] "=&w"(sums.of[0][2]), [a3] "=&w"(sums.of[0][3]),     \
      [a4] "=&w"(sums.of[0][4]), [a5] "=&w"(sums.of[0][5]), [a6] "=&w"(sums.of[0][6]), [a7] "=&w"(sums.of[0][7]), \
      [b0] "=&w"(sums.of[1][0]), [b1] "=&w"(sums.of[1][1]), [b2] "=&w"(sums.of[1][2]), [b3] "=&w"(sums.of[1][3]), \
      [b4] "=&w"(sums.of[1][4]), [b5] "=&w"(sums.of[1][5]), [b6] "=&w"(sums.of[1][6]), [b7] "=&w"(sums.of[1][7])

#define MILLRACE_TAKEN "cc", "memory", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25"

// Sixteen keys, eight at `first` and eight at `second`: [steps][8][4]. pairs: [steps][2][2][4]; steps a multiple of 4.
[[gnu::always_inline]] inline Sums score_sixteen(const std::byte* first, const std::byte* second,
                                                 const std::byte* pairs, int64_t steps,
                                                 const std::byte* const* pieces) {
  Sums sums;
  const std::byte* line;
  asm volatile(
      MILLRACE_NONE
      "1:\n"
      MILLRACE_PIECE MILLRACE_LINE(0) MILLRACE_LINE(64) MILLRACE_STEP(0, first, 0, second, 0)
      MILLRACE_LINE(128) MILLRACE_STEP(32, first, 64, second, 64)
      MILLRACE_LINE(192) MILLRACE_LINE(256) MILLRACE_STEP(64, first, 128, second, 128)
      MILLRACE_LINE(320) MILLRACE_STEP(96, first, 192, second, 192)
      MILLRACE_LINE(384) MILLRACE_LINE(448) MILLRACE_STEP(128, first, 256, second, 256)
      MILLRACE_PIECE MILLRACE_LINE(0) MILLRACE_STEP(160, first, 320, second, 320)
      MILLRACE_LINE(64) MILLRACE_LINE(128) MILLRACE_STEP(192, first, 384, second, 384)
      MILLRACE_LINE(192) MILLRACE_STEP(224, first, 448, second, 448)
      MILLRACE_LINE(256) MILLRACE_LINE(320) MILLRACE_STEP(256, first, 512, second, 512)
      MILLRACE_LINE(384) MILLRACE_STEP(288, first, 576, second, 576)
      MILLRACE_LINE(448) MILLRACE_PIECE MILLRACE_LINE(0) MILLRACE_STEP(320, first, 640, second, 640)
      MILLRACE_LINE(64) MILLRACE_STEP(352, first, 704, second, 704)
      MILLRACE_LINE(128) MILLRACE_LINE(192) MILLRACE_STEP(384, first, 768, second, 768)
      MILLRACE_LINE(256) MILLRACE_STEP(416, first, 832, second, 832)
      MILLRACE_LINE(320) MILLRACE_LINE(384) MILLRACE_STEP(448, first, 896, second, 896)
      MILLRACE_LINE(448) MILLRACE_STEP(480, first, 960, second, 960)
      "add %[pair], %[pair], #512\n"
      "add %[first], %[first], #1024\n"
      "add %[second], %[second], #1024\n"
      "subs %[steps], %[steps], #16\n"
      "b.gt 1b\n"
      : MILLRACE_SUMS(sums), [first] "+&r"(first), [second] "+&r"(second), [pair] "+&r"(pairs), [steps] "+&r"(steps),
        [pieces] "+&r"(pieces), [line] "=&r"(line)
      :
      : MILLRACE_TAKEN);
  return sums;
}

// Sixteen dimensions of values: runs of sixteen tokens that start `place` after values[i], [4 fours][16][4]. pairs:
// [4 * runs][2][2][4].
[[gnu::always_inline]] inline Sums weigh_sixteen(const std::byte* const* values, int64_t place, int64_t runs,
                                                 const std::byte* pairs, const std::byte* const* pieces) {
  Sums sums;
  const std::byte *line, *run;
  asm volatile(
      MILLRACE_NONE
      "1:\n"
      "ldr %[run], [%[values]], #8\n"
      "add %[run], %[run], %[place]\n"
      MILLRACE_PIECE MILLRACE_LINE(0) MILLRACE_LINE(64) MILLRACE_STEP(0, run, 0, run, 64)
      MILLRACE_LINE(128) MILLRACE_STEP(32, run, 128, run, 192)
      MILLRACE_LINE(192) MILLRACE_LINE(256) MILLRACE_STEP(64, run, 256, run, 320)
      MILLRACE_LINE(320) MILLRACE_STEP(96, run, 384, run, 448)
      "ldr %[run], [%[values]], #8\n"
      "add %[run], %[run], %[place]\n"
      MILLRACE_LINE(384) MILLRACE_LINE(448) MILLRACE_STEP(128, run, 0, run, 64)
      MILLRACE_PIECE MILLRACE_LINE(0) MILLRACE_STEP(160, run, 128, run, 192)
      MILLRACE_LINE(64) MILLRACE_LINE(128) MILLRACE_STEP(192, run, 256, run, 320)
      MILLRACE_LINE(192) MILLRACE_STEP(224, run, 384, run, 448)
      "ldr %[run], [%[values]], #8\n"
      "add %[run], %[run], %[place]\n"
      MILLRACE_LINE(256) MILLRACE_LINE(320) MILLRACE_STEP(256, run, 0, run, 64)
      MILLRACE_LINE(384) MILLRACE_STEP(288, run, 128, run, 192)
      MILLRACE_LINE(448) MILLRACE_PIECE MILLRACE_LINE(0) MILLRACE_STEP(320, run, 256, run, 320)
      MILLRACE_LINE(64) MILLRACE_STEP(352, run, 384, run, 448)
      "ldr %[run], [%[values]], #8\n"
      "add %[run], %[run], %[place]\n"
      MILLRACE_LINE(128) MILLRACE_LINE(192) MILLRACE_STEP(384, run, 0, run, 64)
      MILLRACE_LINE(256) MILLRACE_STEP(416, run, 128, run, 192)
      MILLRACE_LINE(320) MILLRACE_LINE(384) MILLRACE_STEP(448, run, 256, run, 320)
      MILLRACE_LINE(448) MILLRACE_STEP(480, run, 384, run, 448)
      "add %[pair], %[pair], #512\n"
      "subs %[runs], %[runs], #4\n"
      "b.gt 1b\n"
      : MILLRACE_SUMS(sums), [run] "=&r"(run), [values] "+&r"(values), [pair] "+&r"(pairs), [runs] "+&r"(runs),
        [pieces] "+&r"(pieces), [line] "=&r"(line)
      : [place] "r"(place)
      : MILLRACE_TAKEN);
  return sums;
}

#undef MILLRACE_MULTIPLY
#undef MILLRACE_STEP
#undef MILLRACE_PIECE
#undef MILLRACE_LINE
#undef MILLRACE_NONE
#undef MILLRACE_SUMS
#undef MILLRACE_TAKEN

}  // namespace
}  // namespace millrace::cpu
