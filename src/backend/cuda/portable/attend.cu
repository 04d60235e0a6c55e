// Attention for heads of 64 and 128 numbers in a 16-bit cache, without Hopper's instructions.
#include "backend/cuda/portable/portable.h"

namespace millrace::cuda::portable {

cudaError_t attend(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                   View out, const AttendPlan&) {
  attend_any(stream, step, attention, q, kv, out);
  return cudaSuccess;
}

}  // namespace millrace::cuda::portable
