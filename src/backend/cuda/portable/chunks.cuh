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

}  // namespace millrace::cuda::portable
