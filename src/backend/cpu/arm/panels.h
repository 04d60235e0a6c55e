// Quantised weights as they lie in memory: panels of eight outputs, group after group of inputs. What a group is made
// of is the format's business (formats32.h, formats256.h).
#pragma once

#include "backend/cpu/arm/int8_mma.h"
#include "tensor/dtype.h"

namespace millrace::cpu {
namespace {

// F has kBytes of a packed panel's group, kFileBytes of a group in the file, pack() eight rows' groups (null: zeros)
// and unpack() one of them.
template <class F, int64_t inputs>
struct Panels {
  static int64_t packed_bytes(int64_t rows, int64_t cols) {
    return up_to(rows, kPanel) / kPanel * (cols / inputs) * F::kBytes;
  }

  static void pack(const std::byte* in, int64_t rows, int64_t cols, int64_t begin, int64_t end, std::byte* out) {
    int64_t groups = cols / inputs, row_bytes = groups * F::kFileBytes;
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
    int64_t groups = weight.cols / inputs;
    const std::byte* from = weight.data + row / kPanel * groups * F::kBytes;
    for (int64_t g = 0; g < groups; ++g, from += F::kBytes, out += inputs) {
      std::byte group[F::kFileBytes] = {};
      F::unpack(from, static_cast<int>(row % kPanel), group);
      format(weight.type).to_float(group, out, inputs);
    }
  }
};

}  // namespace
}  // namespace millrace::cpu
