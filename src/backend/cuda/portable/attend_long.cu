// Attention of pieces of many rows without Hopper's instructions: the loop is attend_piece.cuh's.
#include "backend/cuda/attend_piece.cuh"
#include "backend/cuda/portable/chunks.cuh"
#include "backend/cuda/portable/portable.h"

namespace millrace::cuda::portable {
namespace {

template <class T, int D>
struct PieceSide : CopiedNumbers<D, kPieceThreads> {
  using Base = CopiedNumbers<D, kPieceThreads>;
  using Number = T;
  static constexpr int kDim = D, kPieceRoomBytes = Base::kBytes;
  static constexpr bool kParted = false;

  __device__ PieceSide(const typename Base::Known&, const KvView& kv, char* room, int thread, int, int)
      : Base(kv, shared_address(room), thread) {}
  __device__ uint32_t keys(int) const { return this->keys_at(); }
  __device__ uint32_t values(int) const { return this->values_at(); }
  __device__ void keys_read() const { __syncthreads(); }
  __device__ void values_read() const { __syncthreads(); }
  __device__ void scale_scores(float (&)[kChunk / 2]) const {}
  __device__ WeightsAsTheyAre weight_scale() const { return {}; }
};

}  // namespace

cudaError_t attend(cudaStream_t stream, const DeviceStep& step, const Attention& attention, View q, const KvView& kv,
                   View out, const AttendPlan& plan) {
  if (plan.shorts) attend_short(stream, step, attention, q, kv, out, plan);
  if (plan.long_queries > 0)
    by_head(attention, kv, [&]<class T, int D, bool Shaped>(HeadKind<T, D, Shaped>) {
      start_copied_long<PieceSide<T, D>, Shaped>(stream, step, attention, q, kv, out, plan, {});
    });
  return cudaSuccess;
}

cudaError_t load_attend_long() { return load_kernels(); }

}  // namespace millrace::cuda::portable
