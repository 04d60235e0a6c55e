// Matrix instructions of four warps together: sums (64 x N), if they are kept, + inputs (64 rows x 16) * weights (16 x
// N), both from shared memory. They run beside the warps that start them: begin() before the first, end() after the
// last, finished() before sums are read. Lane 4g + t of warp w has in sums[4j + i] row 16w + g + i / 2 * 8, output 8j +
// 2t + i % 2.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/ptx.cuh"

namespace millrace::cuda {

__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Left>
__device__ inline void products_finished() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}

// Says where rows lie: 128 bytes of each (64 numbers), their sixteenths turned by the row's number, eight rows a unit.
// Sixteen numbers further is + 2.
__device__ inline uint64_t inputs_at(uint32_t shared) {
  return (uint64_t{shared} >> 4 & 0x3FFF) | uint64_t{1} << 16 | uint64_t{64} << 32 | uint64_t{1} << 62;
}
// Says where a chunk of weights lies (packed.h), its panels one after the other. Sixteen inputs further is + 16.
__device__ inline uint64_t weights_at(uint32_t shared) {
  return (uint64_t{shared} >> 4 & 0x3FFF) | uint64_t{8} << 16 | uint64_t{64} << 32;
}

// clang-format off
#define MILLRACE_SUMS_8(i)                                                                                     \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define MILLRACE_SUMS_16(i) MILLRACE_SUMS_8(i), MILLRACE_SUMS_8(i + 8)
#define MILLRACE_SUMS_32(i) MILLRACE_SUMS_16(i), MILLRACE_SUMS_16(i + 16)
#define MILLRACE_SUMS_24(i) MILLRACE_SUMS_16(i), MILLRACE_SUMS_8(i + 16)
#define MILLRACE_SUMS_48(i) MILLRACE_SUMS_32(i), MILLRACE_SUMS_16(i + 32)
#define MILLRACE_SUMS_64(i) MILLRACE_SUMS_32(i), MILLRACE_SUMS_32(i + 32)
#define MILLRACE_SUMS_96(i) MILLRACE_SUMS_64(i), MILLRACE_SUMS_32(i + 64)
#define MILLRACE_SUMS_112(i) MILLRACE_SUMS_64(i), MILLRACE_SUMS_32(i + 64), MILLRACE_SUMS_16(i + 96)
#define MILLRACE_SUMS_128(i) MILLRACE_SUMS_64(i), MILLRACE_SUMS_64(i + 64)
#define MILLRACE_NAMES_0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define MILLRACE_NAMES_16 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define MILLRACE_NAMES_32 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define MILLRACE_NAMES_48 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define MILLRACE_NAMES_64 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define MILLRACE_NAMES_80 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define MILLRACE_NAMES_96 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define MILLRACE_NAMES_112 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define MILLRACE_NAMES_OF_16 MILLRACE_NAMES_0
#define MILLRACE_NAMES_OF_24 MILLRACE_NAMES_OF_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define MILLRACE_NAMES_OF_32 MILLRACE_NAMES_OF_16 "," MILLRACE_NAMES_16
#define MILLRACE_NAMES_OF_48 MILLRACE_NAMES_OF_32 "," MILLRACE_NAMES_32
#define MILLRACE_NAMES_OF_64 MILLRACE_NAMES_OF_32 "," MILLRACE_NAMES_32 "," MILLRACE_NAMES_48
#define MILLRACE_NAMES_OF_96 MILLRACE_NAMES_OF_64 "," MILLRACE_NAMES_64 "," MILLRACE_NAMES_80
#define MILLRACE_NAMES_OF_112 MILLRACE_NAMES_OF_96 "," MILLRACE_NAMES_96
#define MILLRACE_NAMES_OF_128 MILLRACE_NAMES_OF_112 "," MILLRACE_NAMES_112

// One instruction; the operands behind the sums (S of them) are number S, S + 1 and S + 2.
#define MILLRACE_PRODUCT(OUTPUTS, FORMAT, S, FIRST, SECOND, KEEP)                                             \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP ", 0;\n"                                       \
               "wgmma.mma_async.sync.aligned.m64n" #OUTPUTS "k16.f32." FORMAT "." FORMAT " {"                  \
               MILLRACE_NAMES_OF_##S "}, " FIRST ", " SECOND ", keep, 1, 1, 0, 0;\n}"                         \
               : MILLRACE_SUMS_##S(0)                                                                         \
               : "l"(inputs), "l"(weights), "r"(keep))
#define MILLRACE_PRODUCT_OF(OUTPUTS, S, FIRST, SECOND, KEEP)                                                  \
  template <class T>                                                                                          \
  __device__ inline void multiply_add(float (&d)[S], uint64_t inputs, uint64_t weights, int keep) {           \
    if constexpr (std::is_same_v<T, __half>)                                                                  \
      MILLRACE_PRODUCT(OUTPUTS, "f16", S, FIRST, SECOND, KEEP);                                               \
    else                                                                                                      \
      MILLRACE_PRODUCT(OUTPUTS, "bf16", S, FIRST, SECOND, KEEP);                                              \
  }
MILLRACE_PRODUCT_OF(32, 16, "%16", "%17", "%18")
MILLRACE_PRODUCT_OF(48, 24, "%24", "%25", "%26")
MILLRACE_PRODUCT_OF(64, 32, "%32", "%33", "%34")
MILLRACE_PRODUCT_OF(96, 48, "%48", "%49", "%50")
MILLRACE_PRODUCT_OF(128, 64, "%64", "%65", "%66")
MILLRACE_PRODUCT_OF(192, 96, "%96", "%97", "%98")
MILLRACE_PRODUCT_OF(224, 112, "%112", "%113", "%114")
MILLRACE_PRODUCT_OF(256, 128, "%128", "%129", "%130")
// clang-format on

}  // namespace millrace::cuda
