// Bringing a chunk's keys or values from their pages to shared memory by copies of sixteen bytes: 64 numbers of every
// position are 128 bytes, sixteenths turned by the position's number, the next 64 numbers behind all positions. Zeros
// from `end` on. Device code.
#pragma once

#include "backend/cuda/attend.cuh"

namespace millrace::cuda::portable {

// thread: one of Threads that call it together.
template <int D, int Threads>
__device__ void bring_chunk(const KvView& kv, const int32_t* pages, int64_t offset, int kv_head, int first, int end,
                            uint32_t to, int thread) {
  constexpr int kPieces = D / 8, kStep = Threads / kPieces;
  const int shift = 31 - __clz(kv.page_tokens), piece = thread % kPieces;
  const std::byte* mine = kv.base + offset + piece * 16;
  to += static_cast<uint32_t>(piece / 8 * kChunk * 128);
#pragma unroll 4
  for (int position = thread / kPieces; position < kChunk; position += kStep) {
    const int at = first + position;
    const std::byte* from = kv.base;
    if (at < end) {
      const int64_t row = (int64_t{kv_head} << shift) + (at & (kv.page_tokens - 1));
      from = mine + int64_t{max(pages[at >> shift], 0)} * kv.page_stride + row * (D * 2);
    }
    copy_16(to + static_cast<uint32_t>(position * 128 + ((piece ^ position) & 7) * 16), from, at < end ? 16 : 0);
  }
}

// Keys and values of a chunk, side by side, for those who copy for themselves (attend_copied.cuh).
template <int D, int Threads>
struct CopiedNumbers {
  struct Known {};
  static constexpr int kSideBytes = kChunk * D * 2, kBytes = 2 * kSideBytes;
  const KvView& kv;
  uint32_t room;
  int thread;
  const int32_t* pages = nullptr;
  int kv_head = 0;

  __device__ CopiedNumbers(const KvView& kv_, uint32_t room_, int thread_) : kv(kv_), room(room_), thread(thread_) {}
  __device__ void begin(const int32_t* its_pages, int its_kv_head) {
    pages = its_pages;
    kv_head = its_kv_head;
  }
  __device__ uint32_t keys_at() const { return room; }
  __device__ uint32_t values_at() const { return room + kSideBytes; }
  __device__ void bring_keys(int first, int end) const {
    bring_chunk<D, Threads>(kv, pages, kv.k_offset, kv_head, first, end, keys_at(), thread);
  }
  __device__ void bring_values(int first, int end) const {
    bring_chunk<D, Threads>(kv, pages, kv.v_offset, kv_head, first, end, values_at(), thread);
  }
};

}  // namespace millrace::cuda::portable
