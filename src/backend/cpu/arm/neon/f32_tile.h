// The loops of products in float32 of rows with weights that are widened on the way, as assembly: g++ 12 copies sums
// between registers, and a copy costs as much as a product. A block holds sixteen outputs side by side for every input,
// so one stream of memory is read and each input of a row is multiplied into sixteen outputs at once. Every output has
// one accumulator and takes its inputs in ascending order: the bits cannot depend on how many rows or blocks are in
// flight.
//
// Up to four rows, [inputs / 4][rows][4], take weights from memory and widen them in registers. More come eight at a
// time, [inputs][8], and have a piece of a block widened for all of them, while the piece before is multiplied: two
// vector pipes bind, and the rest of the core has time for it.
#pragma once

#include "backend/cpu/arm/simd.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kBlock = 16;    // outputs
constexpr int64_t kTileRows = 8;  // most
constexpr int64_t kStep = 4;      // inputs are padded to a multiple of it

// How weights are kept.
enum class Stored : uint8_t {
  f32,
  f16,        // the first four of every eight are widened to the number times 2^-112 (see f32_linear.h)
  f16_as_is,  // all by conversion
  bf16,
};
constexpr int64_t stored_bytes(Stored stored) { return stored == Stored::f32 ? 4 : 2; }

// clang-format off
#define MILLRACE_FMLA(sum, w, x, lane) "fmla v" #sum ".4s, v" #w ".4s, v" #x ".s[" #lane "]\n"

// Sixteen outputs of an input to four registers, the second and last of which are loaded as stored; v31 is a mask, or
// zero. A conversion of float16 keeps one of the two pipes for two cycles, a shift takes the other for one and a mask
// either: half and half is best.
#define MILLRACE_WIDEN_F32(a, b, c, d) \
  "ldp q" #a ", q" #b ", [%[w]]\nldp q" #c ", q" #d ", [%[w], #32]\nadd %[w], %[w], #64\n"
#define MILLRACE_WIDEN_F16(a, b, c, d) \
  "ldp q" #b ", q" #d ", [%[w]], #32\n" \
  "sshll v" #a ".4s, v" #b ".4h, #13\nand v" #a ".16b, v" #a ".16b, v31.16b\nfcvtl2 v" #b ".4s, v" #b ".8h\n" \
  "sshll v" #c ".4s, v" #d ".4h, #13\nand v" #c ".16b, v" #c ".16b, v31.16b\nfcvtl2 v" #d ".4s, v" #d ".8h\n"
#define MILLRACE_WIDEN_F16_AS_IS(a, b, c, d) \
  "ldp q" #b ", q" #d ", [%[w]], #32\n" \
  "fcvtl v" #a ".4s, v" #b ".4h\nfcvtl2 v" #b ".4s, v" #b ".8h\n" \
  "fcvtl v" #c ".4s, v" #d ".4h\nfcvtl2 v" #d ".4s, v" #d ".8h\n"
#define MILLRACE_WIDEN_BF16(a, b, c, d) \
  "ldp q" #b ", q" #d ", [%[w]], #32\n" \
  "zip1 v" #a ".8h, v31.8h, v" #b ".8h\nzip2 v" #b ".8h, v31.8h, v" #b ".8h\n" \
  "zip1 v" #c ".8h, v31.8h, v" #d ".8h\nzip2 v" #d ".8h, v31.8h, v" #d ".8h\n"

// Four outputs of an input of one to four rows, v16-19, into their sums.
#define MILLRACE_ROWS1(s0, s1, s2, s3, w, lane) MILLRACE_FMLA(s0, w, 16, lane)
#define MILLRACE_ROWS2(s0, s1, s2, s3, w, lane) MILLRACE_FMLA(s0, w, 16, lane) MILLRACE_FMLA(s1, w, 17, lane)
#define MILLRACE_ROWS3(s0, s1, s2, s3, w, lane) MILLRACE_ROWS2(s0, s1, s2, s3, w, lane) MILLRACE_FMLA(s2, w, 18, lane)
#define MILLRACE_ROWS4(s0, s1, s2, s3, w, lane) MILLRACE_ROWS3(s0, s1, s2, s3, w, lane) MILLRACE_FMLA(s3, w, 19, lane)
#define MILLRACE_INPUT(rows, w0, w1, w2, w3, lane) \
  rows(0, 4, 8, 12, w0, lane) rows(1, 5, 9, 13, w1, lane) rows(2, 6, 10, 14, w2, lane) rows(3, 7, 11, 15, w3, lane)
#define MILLRACE_TWO_INPUTS(rows, widen, lane0, lane1) \
  widen(22, 23, 24, 25) widen(26, 27, 28, 29) \
  MILLRACE_INPUT(rows, 22, 23, 24, 25, lane0) MILLRACE_INPUT(rows, 26, 27, 28, 29, lane1)
#define MILLRACE_STEP4(rows, widen) MILLRACE_TWO_INPUTS(rows, widen, 0, 1) MILLRACE_TWO_INPUTS(rows, widen, 2, 3)
// Up to three rows leave registers for four inputs at a time: a product before a widening costs a cycle or two.
#define MILLRACE_STEP(rows, widen) \
  widen(12, 13, 14, 15) widen(19, 20, 21, 22) widen(23, 24, 25, 26) widen(27, 28, 29, 30) \
  MILLRACE_INPUT(rows, 12, 13, 14, 15, 0) MILLRACE_INPUT(rows, 19, 20, 21, 22, 1) \
  MILLRACE_INPUT(rows, 23, 24, 25, 26, 2) MILLRACE_INPUT(rows, 27, 28, 29, 30, 3)
#define MILLRACE_INPUTS1 "ldr q16, [%[x]], #16\n"
#define MILLRACE_INPUTS2 "ldp q16, q17, [%[x]], #32\n"
#define MILLRACE_INPUTS3 MILLRACE_INPUTS2 "ldr q18, [%[x]], #16\n"
#define MILLRACE_INPUTS4 MILLRACE_INPUTS2 "ldp q18, q19, [%[x]], #32\n"

#define MILLRACE_LOAD_ROW(s0, s1, s2, s3, at) \
  "ldp q" #s0 ", q" #s1 ", [%[sums], #" #at "]\nldp q" #s2 ", q" #s3 ", [%[sums], #" #at " + 32]\n"
#define MILLRACE_STORE_ROW(s0, s1, s2, s3, at) \
  "stp q" #s0 ", q" #s1 ", [%[sums], #" #at "]\nstp q" #s2 ", q" #s3 ", [%[sums], #" #at " + 32]\n"
#define MILLRACE_CLEAR_ROW(s0, s1, s2, s3, at) \
  "movi v" #s0 ".4s, #0\nmovi v" #s1 ".4s, #0\nmovi v" #s2 ".4s, #0\nmovi v" #s3 ".4s, #0\n"
#define MILLRACE_SUMS1(each) each(0, 1, 2, 3, 0)
#define MILLRACE_SUMS2(each) MILLRACE_SUMS1(each) each(4, 5, 6, 7, 64)
#define MILLRACE_SUMS3(each) MILLRACE_SUMS2(each) each(8, 9, 10, 11, 128)
#define MILLRACE_SUMS4(each) MILLRACE_SUMS3(each) each(12, 13, 14, 15, 192)

// What is read next is asked for: a line for every two inputs of 16 bits, or for every one of 32.
#define MILLRACE_AHEAD2 "prfm pldl1keep, [%[ahead]]\nprfm pldl1keep, [%[ahead], #64]\nadd %[ahead], %[ahead], #128\n"
#define MILLRACE_AHEAD4 \
  "prfm pldl1keep, [%[ahead]]\nprfm pldl1keep, [%[ahead], #64]\n" \
  "prfm pldl1keep, [%[ahead], #128]\nprfm pldl1keep, [%[ahead], #192]\nadd %[ahead], %[ahead], #256\n"

#define MILLRACE_AHEAD_HERE "prfm pldl1keep, [%[w], #1024]\nprfm pldl1keep, [%[w], #1088]\n"

#define MILLRACE_FEW(rows, inputs, each_sum, widen, fetch, step, start)                                       \
  asm volatile("dup v31.4s, %w[mask]\n"                                                                      \
               each_sum(start)                                                                               \
               "1:\n"                                                                                        \
               "ldr %[w], [%[pieces]], #8\n"                                                                 \
               "ldr %[ahead], [%[pieces]]\n"                                                                 \
               "mov %[left], %[steps]\n"                                                                     \
               "add %[w], %[w], %[from]\n"                                                                   \
               "add %[ahead], %[ahead], %[from]\n"                                                           \
               "2:\n"                                                                                        \
               inputs fetch                                                                                  \
               step(rows, widen)                                                                             \
               "subs %[left], %[left], #1\n"                                                                 \
               "b.ne 2b\n"                                                                                   \
               "subs %[count], %[count], #1\n"                                                               \
               "b.ne 1b\n"                                                                                   \
               each_sum(MILLRACE_STORE_ROW)                                                                  \
               : [x] "+&r"(x), [pieces] "+&r"(pieces), [count] "+&r"(count), [w] "=&r"(w),                   \
                 [ahead] "=&r"(ahead), [left] "=&r"(left)                                                    \
               : [sums] "r"(sums), [mask] "r"(mask), [steps] "r"(inputs_each / kStep), [from] "r"(from)      \
               : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11",   \
                 "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",  \
                 "v25", "v26", "v27", "v28", "v29", "v30", "v31")

// sums [Rows][16] += (= if `fresh`) x [inputs / 4][Rows][4] x w [inputs][16], which lies in `count` pieces of
// inputs_each inputs, a multiple of kStep, `from` bytes after where the pointers say. While a piece is read, what the
// pointer after its own says is asked for; so there is one more pointer than pieces.
template <Stored stored, int Rows, bool fresh = false>
inline void multiply_few(const float* x, const std::byte* const* pieces, int64_t from, int64_t count,
                         int64_t inputs_each, float* sums) {
  const uint32_t mask = stored == Stored::f16 ? 0x8fffffffu : 0;
  const std::byte *w, *ahead;
  int64_t left;
  static_assert(Rows >= 1 && Rows <= 4);
#define MILLRACE_FEW_FROM(widen, fetch, start)                                                                \
  if constexpr (Rows == 1)                                                                                    \
    MILLRACE_FEW(MILLRACE_ROWS1, MILLRACE_INPUTS1, MILLRACE_SUMS1, widen, fetch, MILLRACE_STEP, start);     \
  if constexpr (Rows == 2)                                                                                    \
    MILLRACE_FEW(MILLRACE_ROWS2, MILLRACE_INPUTS2, MILLRACE_SUMS2, widen, fetch, MILLRACE_STEP, start);     \
  if constexpr (Rows == 3)                                                                                    \
    MILLRACE_FEW(MILLRACE_ROWS3, MILLRACE_INPUTS3, MILLRACE_SUMS3, widen, fetch, MILLRACE_STEP, start);     \
  if constexpr (Rows == 4)                                                                                    \
    MILLRACE_FEW(MILLRACE_ROWS4, MILLRACE_INPUTS4, MILLRACE_SUMS4, widen, fetch, MILLRACE_STEP4, start)
#define MILLRACE_FEW_OF(widen, fetch)                                                                         \
  if constexpr (fresh) {                                                                                      \
    MILLRACE_FEW_FROM(widen, fetch, MILLRACE_CLEAR_ROW);                                                      \
  } else {                                                                                                    \
    MILLRACE_FEW_FROM(widen, fetch, MILLRACE_LOAD_ROW);                                                       \
  }
  if constexpr (stored == Stored::f32) { MILLRACE_FEW_OF(MILLRACE_WIDEN_F32, MILLRACE_AHEAD4) }
  if constexpr (stored == Stored::f16) { MILLRACE_FEW_OF(MILLRACE_WIDEN_F16, MILLRACE_AHEAD2) }
  if constexpr (stored == Stored::f16_as_is) { MILLRACE_FEW_OF(MILLRACE_WIDEN_F16_AS_IS, MILLRACE_AHEAD2) }
  if constexpr (stored == Stored::bf16) { MILLRACE_FEW_OF(MILLRACE_WIDEN_BF16, MILLRACE_AHEAD2) }
#undef MILLRACE_FEW_FROM
#undef MILLRACE_FEW_OF
}

// Eight outputs of an input to two registers; v28 as stored.
#define MILLRACE_HALF_F32(a, b) "ldp q" #a ", q" #b ", [%[w]]\nadd %[w], %[w], %[w_stride]\n"
#define MILLRACE_HALF(widen) "ldr q28, [%[w]]\nadd %[w], %[w], %[w_stride]\n" widen
#define MILLRACE_HALF_F16_AS_IS(a, b) MILLRACE_HALF("fcvtl v" #a ".4s, v28.4h\nfcvtl2 v" #b ".4s, v28.8h\n")
#define MILLRACE_PAIR(a, b, w0, w1, x, lane) MILLRACE_FMLA(a, w0, x, lane) MILLRACE_FMLA(b, w1, x, lane)
#define MILLRACE_EIGHT(w0, w1, x0, x1) \
  MILLRACE_PAIR(0, 1, w0, w1, x0, 0) MILLRACE_PAIR(2, 3, w0, w1, x0, 1) MILLRACE_PAIR(4, 5, w0, w1, x0, 2) \
  MILLRACE_PAIR(6, 7, w0, w1, x0, 3) MILLRACE_PAIR(8, 9, w0, w1, x1, 0) MILLRACE_PAIR(10, 11, w0, w1, x1, 1) \
  MILLRACE_PAIR(12, 13, w0, w1, x1, 2) MILLRACE_PAIR(14, 15, w0, w1, x1, 3)
#define MILLRACE_EACH_ROW(each) \
  each(0, 1) each(2, 3) each(4, 5) each(6, 7) each(8, 9) each(10, 11) each(12, 13) each(14, 15)
#define MILLRACE_LOAD_PAIR(a, b) "ldp q" #a ", q" #b ", [%[at]]\nadd %[at], %[at], %[stride]\n"
#define MILLRACE_STORE_PAIR(a, b) "stp q" #a ", q" #b ", [%[sums]]\nadd %[sums], %[sums], %[stride]\n"
#define MILLRACE_ZERO_PAIR(a, b) "movi v" #a ".4s, #0\nmovi v" #b ".4s, #0\n"

#define MILLRACE_EIGHTS_LOOP(fetch, half, first, second, third, fourth)                                       \
  MILLRACE_EACH_ROW(MILLRACE_LOAD_PAIR)                                                                       \
  "1:\n" fetch                                                                                                \
  "ldp q16, q17, [%[x]], #128\n"                                                                              \
  half(18, 19) half(20, 21) half(22, 23) half(24, 25)                                                         \
  "ldp q26, q27, [%[x], #-96]\n"                                                                              \
  first(18, 19, 16, 17)                                                                                       \
  "ldp q16, q17, [%[x], #-64]\n"                                                                              \
  second(20, 21, 26, 27)                                                                                      \
  "ldp q26, q27, [%[x], #-32]\n"                                                                              \
  third(22, 23, 16, 17)                                                                                       \
  fourth(24, 25, 26, 27)                                                                                      \
  "subs %[count], %[count], #4\n"                                                                             \
  "b.ne 1b\n"                                                                                                 \
  MILLRACE_EACH_ROW(MILLRACE_STORE_PAIR)
#define MILLRACE_EIGHTS_CLOBBERS                                                                              \
  "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",\
  "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28"

#define MILLRACE_EIGHTS(half, fetch)                                                                          \
  asm volatile(MILLRACE_EIGHTS_LOOP(fetch, half, MILLRACE_EIGHT, MILLRACE_EIGHT, MILLRACE_EIGHT, MILLRACE_EIGHT)\
               : [x] "+&r"(x), [w] "+&r"(w), [count] "+&r"(count), [sums] "+&r"(sums), [at] "+&r"(at)         \
               : [w_stride] "r"(w_stride), [stride] "r"(stride * 4)                                           \
               : MILLRACE_EIGHTS_CLOBBERS)

// sums [8][stride], eight of each, += x [count][8] x w [count], eight of each, w_stride bytes apart; count a multiple
// of 4.
template <Stored stored>
inline void multiply_eight(const float* x, const std::byte* w, int64_t w_stride, int64_t count, float* sums,
                           int64_t stride) {
  static_assert(stored == Stored::f32 || stored == Stored::f16_as_is);
  const float* at = sums;
  if constexpr (stored == Stored::f32) MILLRACE_EIGHTS(MILLRACE_HALF_F32, "");
  if constexpr (stored == Stored::f16_as_is) MILLRACE_EIGHTS(MILLRACE_HALF_F16_AS_IS, MILLRACE_AHEAD_HERE);
}

// The same with float32 weights, and beside it, in what the vector pipes leave of the stream of instructions, plain
// registers widen other weights of 16 bits, a unit of eight at a time. Of four neighbours the second and the third
// change places, for a register holds two float32. float16 becomes the number times 2^-112, all of it.
#define MILLRACE_UNIT_BF16_0 "ldp %[a], %[b], [%[from]], #16\n"
#define MILLRACE_UNIT_BF16_1
#define MILLRACE_UNIT_BF16_2 "and %[c], %[high], %[a], lsl #16\n"
#define MILLRACE_UNIT_BF16_3 "and %[a], %[a], %[high]\n"
#define MILLRACE_UNIT_BF16_4 "stp %[c], %[a], [%[to]], #32\n"
#define MILLRACE_UNIT_BF16_5 "and %[c], %[high], %[b], lsl #16\n"
#define MILLRACE_UNIT_BF16_6 "and %[b], %[b], %[high]\n"
#define MILLRACE_UNIT_BF16_7 "stp %[c], %[b], [%[to], #-16]\n"
#define MILLRACE_UNIT_F16_0 "ldp %[a], %[b], [%[from]], #16\n"
#define MILLRACE_UNIT_F16_1 "and %[c], %[high], %[a], lsl #16\nand %[d], %[low], %[a], lsl #13\n"
#define MILLRACE_UNIT_F16_2 "orr %[c], %[c], %[d]\nand %[d], %[low], %[a], lsr #3\n"
#define MILLRACE_UNIT_F16_3 "and %[a], %[a], %[high]\norr %[a], %[a], %[d]\n"
#define MILLRACE_UNIT_F16_4 "stp %[c], %[a], [%[to]], #32\nand %[c], %[high], %[b], lsl #16\n"
#define MILLRACE_UNIT_F16_5 "and %[d], %[low], %[b], lsl #13\norr %[c], %[c], %[d]\n"
#define MILLRACE_UNIT_F16_6 "and %[d], %[low], %[b], lsr #3\nand %[b], %[b], %[high]\n"
#define MILLRACE_UNIT_F16_7 "orr %[b], %[b], %[d]\nstp %[c], %[b], [%[to], #-16]\n"
#define MILLRACE_EIGHT_BESIDE(unit, w0, w1, x0, x1) \
  MILLRACE_PAIR(0, 1, w0, w1, x0, 0) unit##0 MILLRACE_PAIR(2, 3, w0, w1, x0, 1) unit##1 \
  MILLRACE_PAIR(4, 5, w0, w1, x0, 2) unit##2 MILLRACE_PAIR(6, 7, w0, w1, x0, 3) unit##3 \
  MILLRACE_PAIR(8, 9, w0, w1, x1, 0) unit##4 MILLRACE_PAIR(10, 11, w0, w1, x1, 1) unit##5 \
  MILLRACE_PAIR(12, 13, w0, w1, x1, 2) unit##6 MILLRACE_PAIR(14, 15, w0, w1, x1, 3) unit##7
#define MILLRACE_EIGHT_BF16(w0, w1, x0, x1) MILLRACE_EIGHT_BESIDE(MILLRACE_UNIT_BF16_, w0, w1, x0, x1)
#define MILLRACE_EIGHT_F16(w0, w1, x0, x1) MILLRACE_EIGHT_BESIDE(MILLRACE_UNIT_F16_, w0, w1, x0, x1)

#define MILLRACE_AHEAD_OTHER "prfm pldl1keep, [%[from], #1024]\n"
#define MILLRACE_EIGHTS_BESIDE(first, second, third, fourth)                                                  \
  asm volatile(MILLRACE_EIGHTS_LOOP(MILLRACE_AHEAD_OTHER, MILLRACE_HALF_F32, first, second, third, fourth)    \
               : [x] "+&r"(x), [w] "+&r"(w), [count] "+&r"(count), [sums] "+&r"(sums), [at] "+&r"(at),        \
                 [from] "+&r"(beside.from), [to] "+&r"(beside.to), [a] "=&r"(a), [b] "=&r"(b),                \
                 [c] "=&r"(c), [d] "=&r"(d)                                                                   \
               : [w_stride] "r"(w_stride), [stride] "r"(stride * 4), [high] "r"(high), [low] "r"(low)         \
               : MILLRACE_EIGHTS_CLOBBERS)
#define MILLRACE_BESIDE_OF(eight)                                                                             \
  if constexpr (Units == 1) MILLRACE_EIGHTS_BESIDE(eight, MILLRACE_EIGHT, MILLRACE_EIGHT, MILLRACE_EIGHT);     \
  if constexpr (Units == 2) MILLRACE_EIGHTS_BESIDE(eight, MILLRACE_EIGHT, eight, MILLRACE_EIGHT);              \
  if constexpr (Units == 4) MILLRACE_EIGHTS_BESIDE(eight, eight, eight, eight)

struct Beside {
  const std::byte* from;  // weights to widen
  float* to;
};
// `Units` for every four inputs.
template <Stored stored, int Units>
inline void multiply_eight_beside(const float* x, const std::byte* w, int64_t w_stride, int64_t count, float* sums,
                                  int64_t stride, Beside& beside) {
  const uint64_t high = stored == Stored::bf16 ? 0xffff0000ffff0000u : 0x8000000080000000u;
  const uint64_t low = 0x0fffe0000fffe000u;
  const float* at = sums;
  uint64_t a, b, c, d;
  static_assert(Units == 1 || Units == 2 || Units == 4);
  if constexpr (stored == Stored::bf16) { MILLRACE_BESIDE_OF(MILLRACE_EIGHT_BF16); }
  if constexpr (stored == Stored::f16) { MILLRACE_BESIDE_OF(MILLRACE_EIGHT_F16); }
}

// Eight rows that lie apart instead of interleaved: v16-23 hold four inputs of each.
#define MILLRACE_APART(w0, w1, lane) \
  "ldp q" #w0 ", q" #w1 ", [%[w]]\n" \
  "add %[w], %[w], %[w_stride]\n" \
  MILLRACE_FMLA(0, w0, 16, lane) MILLRACE_FMLA(1, w1, 16, lane) MILLRACE_FMLA(2, w0, 17, lane) \
  MILLRACE_FMLA(3, w1, 17, lane) MILLRACE_FMLA(4, w0, 18, lane) MILLRACE_FMLA(5, w1, 18, lane) \
  MILLRACE_FMLA(6, w0, 19, lane) MILLRACE_FMLA(7, w1, 19, lane) MILLRACE_FMLA(8, w0, 20, lane) \
  MILLRACE_FMLA(9, w1, 20, lane) MILLRACE_FMLA(10, w0, 21, lane) MILLRACE_FMLA(11, w1, 21, lane) \
  MILLRACE_FMLA(12, w0, 22, lane) MILLRACE_FMLA(13, w1, 22, lane) MILLRACE_FMLA(14, w0, 23, lane) \
  MILLRACE_FMLA(15, w1, 23, lane)

// sums [8][stride], eight of each, = x [8][Apart] x w [count][w_stride], eight of each; count a multiple of 4.
template <int64_t Apart>
inline void multiply_eight_apart(const float* x, const float* w, int64_t w_stride, int64_t count, float* sums,
                                 int64_t stride) {
  asm volatile(MILLRACE_EACH_ROW(MILLRACE_ZERO_PAIR)
               "1:\n"
               "ldr q16, [%[x]]\n"
               "ldr q17, [%[x], %[apart]]\n"
               "ldr q18, [%[x], %[apart] * 2]\n"
               "ldr q19, [%[x], %[apart] * 3]\n"
               "ldr q20, [%[x], %[apart] * 4]\n"
               "ldr q21, [%[x], %[apart] * 5]\n"
               "ldr q22, [%[x], %[apart] * 6]\n"
               "ldr q23, [%[x], %[apart] * 7]\n"
               "add %[x], %[x], #16\n"
               MILLRACE_APART(24, 25, 0) MILLRACE_APART(26, 27, 1) MILLRACE_APART(28, 29, 2) MILLRACE_APART(30, 31, 3)
               "subs %[count], %[count], #4\n"
               "b.gt 1b\n"
               MILLRACE_EACH_ROW(MILLRACE_STORE_PAIR)
               : [x] "+&r"(x), [w] "+&r"(w), [count] "+&r"(count), [sums] "+&r"(sums)
               : [w_stride] "r"(w_stride * 4), [stride] "r"(stride * 4), [apart] "i"(Apart * 4)
               : "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",
                 "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26",
                 "v27", "v28", "v29", "v30", "v31");
}
// clang-format on

#undef MILLRACE_FMLA
#undef MILLRACE_WIDEN_F32
#undef MILLRACE_WIDEN_F16
#undef MILLRACE_WIDEN_F16_AS_IS
#undef MILLRACE_WIDEN_BF16
#undef MILLRACE_ROWS1
#undef MILLRACE_ROWS2
#undef MILLRACE_ROWS3
#undef MILLRACE_ROWS4
#undef MILLRACE_INPUT
#undef MILLRACE_TWO_INPUTS
#undef MILLRACE_STEP
#undef MILLRACE_STEP4
#undef MILLRACE_INPUTS1
#undef MILLRACE_INPUTS2
#undef MILLRACE_INPUTS3
#undef MILLRACE_INPUTS4
#undef MILLRACE_LOAD_ROW
#undef MILLRACE_CLEAR_ROW
#undef MILLRACE_STORE_ROW
#undef MILLRACE_SUMS1
#undef MILLRACE_SUMS2
#undef MILLRACE_SUMS3
#undef MILLRACE_SUMS4
#undef MILLRACE_AHEAD2
#undef MILLRACE_AHEAD4
#undef MILLRACE_AHEAD_HERE
#undef MILLRACE_FEW
#undef MILLRACE_HALF_F32
#undef MILLRACE_HALF
#undef MILLRACE_HALF_F16_AS_IS
#undef MILLRACE_PAIR
#undef MILLRACE_EIGHT
#undef MILLRACE_EACH_ROW
#undef MILLRACE_LOAD_PAIR
#undef MILLRACE_STORE_PAIR
#undef MILLRACE_ZERO_PAIR
#undef MILLRACE_APART
#undef MILLRACE_EIGHTS
#undef MILLRACE_UNIT_BF16_0
#undef MILLRACE_UNIT_BF16_1
#undef MILLRACE_UNIT_BF16_2
#undef MILLRACE_UNIT_BF16_3
#undef MILLRACE_UNIT_BF16_4
#undef MILLRACE_UNIT_BF16_5
#undef MILLRACE_UNIT_BF16_6
#undef MILLRACE_UNIT_BF16_7
#undef MILLRACE_UNIT_F16_0
#undef MILLRACE_UNIT_F16_1
#undef MILLRACE_UNIT_F16_2
#undef MILLRACE_UNIT_F16_3
#undef MILLRACE_UNIT_F16_4
#undef MILLRACE_UNIT_F16_5
#undef MILLRACE_UNIT_F16_6
#undef MILLRACE_UNIT_F16_7
#undef MILLRACE_EIGHT_BF16
#undef MILLRACE_EIGHT_F16
#undef MILLRACE_BESIDE_OF
#undef MILLRACE_EIGHT_BESIDE
#undef MILLRACE_EIGHTS_BESIDE

}  // namespace
}  // namespace millrace::cpu
