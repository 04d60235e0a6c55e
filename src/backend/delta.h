// Deltas: what adapters (LoRA) change of a matrix, as a product of two of low rank, so that many of them share one
// model: y = W x + strength * scale * up (down x). A step's rows have one each, or none (Step::adapters). Sums are
// float32; numbers lie in 16 bits where that loses nothing, so the sums are the same either way. `down x` is summed
// first, then `up`; the order of sums follows from the shapes. Values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

inline constexpr int32_t kMostAdapters = 64;      // that are loaded at a time
inline constexpr int32_t kMostAdapterRank = 512;  // of one matrix

enum class DeltaNumbers : int32_t { f32, bf16, f16 };
inline constexpr int64_t bytes_of(DeltaNumbers numbers) { return numbers == DeltaNumbers::f32 ? 4 : 2; }

struct Delta {
  const std::byte* down = nullptr;  // [rank, inputs]; of a table [its rows, rank]; on the backend
  const std::byte* up = nullptr;    // [rank, outputs]
  int32_t rank = 0;                 // 0: the adapter leaves this matrix as it is
  float scale = 0;
  DeltaNumbers numbers = DeltaNumbers::f32;
};

// What one matrix has for the rows at hand.
struct RowDeltas {
  const Delta* changes = nullptr;     // [kMostAdapters] on the backend
  const Delta* listed = nullptr;      // the same, for the host to look at
  const int32_t* adapters = nullptr;  // [rows] as the step has them
  const float* strengths = nullptr;   // [rows]
  const int32_t* ids = nullptr;       // [rows] of a table: the row of `down` that takes the place of `down x`
  float* low = nullptr;               // [rows, rank] room on the backend, for those that need it
  int32_t rank = 0;                   // largest of the adapters that are loaded
};

}  // namespace millrace
