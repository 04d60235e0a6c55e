// Attention of sequences of one row without Hopper's instructions: a thread block is a team of four warps that goes
// through its stretch of all chunks (attend_stretch.cuh) and copies keys and values for itself (attend_copied.cuh).
#include "backend/cuda/attend_copied.cuh"
#include "backend/cuda/portable/chunks.cuh"
#include "backend/cuda/portable/portable.h"

namespace millrace::cuda::portable {
namespace {

template <class T, int D>
struct TeamSide : CopiedNumbers<D, kTeamThreads> {
  using Base = CopiedNumbers<D, kTeamThreads>;
  using Four = Team<T, D>;
  static constexpr int kJoinBatch = D == 128 ? 32 : 16;
  static constexpr int kTeamsBeside = 1;  // at least
  static constexpr int kRoomBytes = Base::kBytes;

  __device__ TeamSide(const typename Base::Known&, const KvView& kv, uint32_t room, int thread)
      : Base(kv, room, thread) {}
  __device__ Four team(Exchange& exchange, uint32_t queries) const {
    return {exchange, queries, 1, kChunk, this->thread / 32, {}, {}, {}};
  }
};

}  // namespace

void attend_short(cudaStream_t stream, const DeviceStep& step, const Attention& attention, const View& q,
                  const KvView& kv, const View& out, const AttendPlan& plan) {
  by_head(attention, kv, [&]<class T, int D, bool Shaped>(HeadKind<T, D, Shaped>) {
    start_copied_short<TeamSide<T, D>, Shaped>(stream, step, attention, q, kv, out, plan, {});
  });
}

cudaError_t load_attend_short() { return load_kernels(); }

}  // namespace millrace::cuda::portable
