// Keys and values of fewer bits in heads of 64 and 128: how a chunk's codes come to shared memory as they lie in their
// pages, and how they become bfloat16. Numbers are exact where a token's head has one factor (int8, E4M3): scores are
// multiplied with the keys' factors and weights with the values'. Four bits have a factor for 32 numbers, which are
// rounded once to bfloat16.
//
// A word of four codes becomes two pairs. Its first two are numbers 2t and 2t + 1 of sixteen to a matrix instruction,
// and its last two are numbers 2t + 8 and 2t + 9: so a lane's word of a row of sixteen codes is its operand. Queries
// have their numbers in the same order ("parted"). Device code.
#pragma once

#include "backend/cuda/attend.cuh"
#include "backend/cuda/unpack.cuh"

namespace millrace::cuda {

// Keys or values of all tokens.
struct Codes {
  DType type;
  int code_bytes;                                                           // of a token's head
  int64_t offset;                                                           // in a page
  int64_t head_bytes;                                                       // of a head's part of a page
  __host__ __device__ bool factors() const { return type != DType::q4_0; }  // one a token's head, behind all codes
};
struct CodedKv {
  Codes keys, values;
};

// body of the kind of codes: int8, E4M3 or four bits.
template <class F>
__device__ __forceinline__ void by_code(DType type, F&& body) {
  if (type == DType::i8) {
    body(std::integral_constant<DType, DType::i8>{});
  } else if (type == DType::f8_e4m3) {
    body(std::integral_constant<DType, DType::f8_e4m3>{});
  } else {
    body(std::integral_constant<DType, DType::q4_0>{});
  }
}

// ---- bringing

// In shared memory: codes of the keys and of the values, then a float32 factor for each key and each value.
template <int D>
struct CodeRoom {
  static constexpr int kKeysAt = 0, kValuesAt = kChunk * D;
  static constexpr int kKeyFactorsAt = 2 * kChunk * D, kValueFactorsAt = kKeyFactorsAt + kChunk * 4;
  static constexpr int kAll = kValueFactorsAt + kChunk * 4;
};

// Where a position's sixteen codes of a byte lie: turned by the position, so that eight positions share no banks.
template <int D>
__device__ inline uint32_t piece_at(int position, int piece) {
  const int turn = D == 128 ? position & 7 : position >> 1 & 3;
  return static_cast<uint32_t>(position * D + (piece ^ turn) * 16);
}

// A warp copies so many positions of a page at a time. Which pages the next chunk's are is asked for a chunk ahead:
// lane i of every warp knows run i's.
constexpr int kRun = 16;

template <int D, int Threads>
struct CodeCopies {
  const CodedKv& coded;
  const KvView& kv;
  uint32_t room;
  int thread;
  const int32_t* pages = nullptr;
  int kv_head = 0, of_keys = 0, of_values = 0, ahead = -1;

  __device__ CodeCopies(const CodedKv& coded_, const KvView& kv_, uint32_t room_, int thread_)
      : coded(coded_), kv(kv_), room(room_), thread(thread_) {}
  __device__ int run() const { return min(kv.page_tokens, kRun); }
  __device__ int page_of(int first, int end) const {
    const int at = first + thread % 32 * run();
    return at < min(first + kChunk, end) ? max(pages[at >> (31 - __clz(kv.page_tokens))], 0) : 0;
  }
  __device__ void begin(const int32_t* its_pages, int its_kv_head) {
    pages = its_pages;
    kv_head = its_kv_head;
    ahead = -1;
  }
  // Of the chunk at `first`, up to the last run that has a position before `end`.
  __device__ void bring_codes(const Codes& side, int of_pages, int first, int end, int to) const {
    const int lane = thread % 32, each = run(), here = each * side.code_bytes / 16;
    const bool bytes = side.factors();
#pragma unroll 2
    for (int r = thread / 32; r < kChunk / each; r += Threads / 32) {
      const int at = first + r * each;
      if (at >= end) break;
      const int page = __shfl_sync(~0u, of_pages, r);
      const std::byte* codes = kv.base + side.offset + int64_t{page} * kv.page_stride + kv_head * side.head_bytes +
                               (at & (kv.page_tokens - 1)) * side.code_bytes;
      const uint32_t place = room + static_cast<uint32_t>(to);
      for (int i = lane; i < here; i += 32) {
        const uint32_t in = bytes ? piece_at<D>(r * each + i / (D / 16), i % (D / 16))
                                  : static_cast<uint32_t>(r * each * side.code_bytes + i * 16);
        copy_16(place + in, codes + i * 16, 16);
      }
    }
  }
  __device__ void bring_factors(const Codes& side, int of_pages, int first, int end, int to) const {
    if (!side.factors() || thread >= 32) return;
    const int each = run(), four = thread * 4, page = __shfl_sync(~0u, of_pages, four / each), at = first + four;
    if (at >= end) return;
    const std::byte* factors = kv.base + side.offset + int64_t{page} * kv.page_stride + kv_head * side.head_bytes +
                               kv.page_tokens * side.code_bytes + (at & (kv.page_tokens - 1)) * 4;
    copy_16(room + static_cast<uint32_t>(to + four * 4), factors, 16);
  }
  // Keys come first, and with them both sides' factors.
  __device__ void bring_keys(int first, int end) {
    of_keys = ahead < 0 ? page_of(first, end) : ahead;
    bring_codes(coded.keys, of_keys, first, end, CodeRoom<D>::kKeysAt);
    bring_factors(coded.keys, of_keys, first, end, CodeRoom<D>::kKeyFactorsAt);
    bring_factors(coded.values, of_keys, first, end, CodeRoom<D>::kValueFactorsAt);
    of_values = of_keys;
    ahead = page_of(first + kChunk, end);
  }
  __device__ void bring_values(int first, int end) const {
    bring_codes(coded.values, of_values, first, end, CodeRoom<D>::kValuesAt);
  }
  __device__ uint32_t keys_at() const { return room + CodeRoom<D>::kKeysAt; }
  __device__ uint32_t values_at() const { return room + CodeRoom<D>::kValuesAt; }
};

// ---- widening

// What is still missing from widened numbers, of powers of two: scores and weights are multiplied with it.
template <DType Kind>
inline constexpr float kMissing = Kind == DType::i8     ? 64.0f
                                  : Kind == DType::q4_0 ? kRaise
                                                        : 1.0f;

// Codes `First` and `Second` of a word, widened. The lowest eight bits of a bfloat16 count steps of 2^-133
// (unpack.cuh), so an integer below 256 is a number as it stands. Of an E4M3's bits, exponent and mantissa where a
// bfloat16 has the lowest and highest of its are the number times 2^-120.
template <DType Kind, int First, int Second>
__device__ __forceinline__ uint32_t pair_of_codes(uint32_t word) {
  if constexpr (Kind == DType::i8) {  // words have 128 added to each code
    return as_bits(
        __hfma2(as_pair(__byte_perm(word, 0, 0x4040 | First | Second << 8)), pair_of(0x7F00), pair_of(0xC000)));
  } else {
    const uint32_t high = __byte_perm(word, 0, 0x0404 | First << 4 | Second << 12);
    const uint32_t bits = (high & 0x80008000u) | (high >> 4 & 0x07F007F0u);
    return as_bits(__hmul2(as_pair(bits), pair_of(0x7B80)));
  }
}
template <DType Kind>
__device__ __forceinline__ uint32_t ready(uint32_t word) {
  return Kind == DType::i8 ? word ^ 0x80808080u : word;
}

// Four bits: a word of codes, one in each byte, times two factors of float16, rounded once and times 2^-64.
__device__ __forceinline__ __nv_bfloat162 factors_of_fours(uint32_t first, uint32_t second) {
  const float low = __half2float(__ushort_as_half(static_cast<uint16_t>(first))) * kFactorRaise,
              high = __half2float(__ushort_as_half(static_cast<uint16_t>(second))) * kFactorRaise;
  return as_pair(two<__nv_bfloat16>(low, high));
}
template <int First, int Second>
__device__ __forceinline__ uint32_t pair_of_fours(uint32_t word, __nv_bfloat162 factors, __nv_bfloat162 less) {
  return as_bits(__hfma2(as_pair(__byte_perm(word, 0, 0x4040 | First | Second << 8)), factors, less));
}
__device__ __forceinline__ __nv_bfloat162 less_of_fours(__nv_bfloat162 factors) {
  return __hmul2(factors, pair_of(0x8008));  // -8 steps
}
inline constexpr uint32_t kLowFours = 0x0F0F0F0Fu;

__device__ __forceinline__ uint32_t load_half_word(uint32_t address) {
  uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address));
  return value;
}
__device__ __forceinline__ float2 load_factors(uint32_t address) {
  float2 value;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(address));
  return value;
}

}  // namespace millrace::cuda
