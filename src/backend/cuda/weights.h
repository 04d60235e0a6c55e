// Weights as the device keeps them: which layout a matrix gets, how many bytes that takes, and bringing it there.
// Loading thread only.
#pragma once

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
Kept kept_as(DType type, int64_t rows, int64_t cols, WeightUse use, const Family& family, bool rounds_inputs);

// The way of weights to the device: two halves of the host's memory, known to the device, and two of the device's. One
// half is filled while the other is under way.
class WayThere {
 public:
  static constexpr int64_t kHalfBytes = int64_t{32} << 20;

  WayThere() = default;
  ~WayThere() { close(); }
  WayThere(const WayThere&) = delete;
  WayThere& operator=(const WayThere&) = delete;

  Result<void> open();
  void close();

  // Brings a matrix to `place` on the device. Its bytes have been read when this returns; what the stream does next
  // finds it there.
  Result<void> bring(const HostMatrix& matrix, const Kept& kept, std::byte* place, Team& team, cudaStream_t stream);

 private:
  struct Half {
    std::byte *host = nullptr, *device = nullptr;
    cudaEvent_t over = nullptr;  // it is free again
  };
  Half halves_[2];
  int next_ = 0;
};

}  // namespace millrace::cuda
