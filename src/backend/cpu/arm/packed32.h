// Weights with a factor per 32 of them (Q8_0, Q4_0, ...) as they lie in memory: panels of eight outputs, group by
// group. What a group is made of is the format's business (formats32.h).
#pragma once

#include "backend/cpu/arm/int8_mma.h"
#include "tensor/dtype.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kGroup = 32;
constexpr int kSteps = 4;  // of eight inputs, in a group

// How a row that comes alone is multiplied: as any other, as Q4_0's split row, or as Q8_0's.
enum class LoneRow : uint8_t { plain, split, bytes };

// A format F has: kBytes of a packed panel's group, kFileBytes of a group in the file, kMins, kShared, kStarts;
// factors() and minimums() of eight outputs; values(): steps 2j and 2j+1 of pair p, times a power of two that kAfter
// undoes; kWideValues, where in a packed group all values lie as a wide panel has them, or negative; pack() eight rows'
// groups (null: zeros) and unpack() one of them.
template <class F>
struct Packed32 {
  static int64_t packed_bytes(int64_t rows, int64_t cols) {
    return up_to(rows, kPanel) / kPanel * (cols / kGroup) * F::kBytes;
  }

  static void pack(const std::byte* in, int64_t rows, int64_t cols, int64_t begin, int64_t end, std::byte* out) {
    int64_t groups = cols / kGroup, row_bytes = groups * F::kFileBytes;
    for (int64_t n = begin; n < end; n += kPanel) {
      std::byte* to = out + n / kPanel * groups * F::kBytes;
      for (int64_t g = 0; g < groups; ++g, to += F::kBytes) {
        const std::byte* from[kPanel];
        for (int64_t i = 0; i < kPanel; ++i)
          from[i] = n + i < rows ? in + (n + i) * row_bytes + g * F::kFileBytes : nullptr;
        F::pack(from, to);
      }
    }
  }

  static void unpack_row(const Weight& weight, int64_t row, float* out) {
    int64_t groups = weight.cols / kGroup;
    const std::byte* from = weight.data + row / kPanel * groups * F::kBytes;
    for (int64_t g = 0; g < groups; ++g, from += F::kBytes, out += kGroup) {
      std::byte group[F::kFileBytes];
      F::unpack(from, static_cast<int>(row % kPanel), group);
      format(weight.type).to_float(group, out, kGroup);
    }
  }
};

}  // namespace
}  // namespace millrace::cpu
