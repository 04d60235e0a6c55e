// Weights as the device keeps them: which layout a matrix gets, how many bytes that takes, and bringing it there.
// Loading thread only.
#pragma once

#include <span>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/family.h"
#include "backend/cuda/packed.h"
#include "base/team.h"

namespace millrace::cuda {

struct Kept {
  DType type;
  Layout layout;
  int64_t bytes;
};
// What a matrix becomes (panel_type in packed.h). Formats the device does not read are kept as bfloat16, rounded.
Kept kept_as(DType type, int64_t rows, int64_t cols, WeightUse use, const Family& family);

// Brings a matrix to `place` on the device. `room` is memory there for rows on their way.
Result<void> bring(const HostMatrix& matrix, const Kept& kept, std::byte* place, std::span<std::byte> room, Team& team,
                   cudaStream_t stream);

}  // namespace millrace::cuda
