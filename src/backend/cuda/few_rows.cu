// Products of at most eight rows, at the speed of memory. A warp takes a panel of sixteen outputs (of gated products
// its two sides) from the first input to the last; its weights come in stretches of a few kilobytes through a ring of
// its own in shared memory, so many ahead that memory never waits. The first ring full is asked for before the kernel
// in front has ended: weights do not depend on it.
#include "backend/cuda/few_rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kMostStages = 24;      // of a stream
constexpr int kFirstStages = 6;      // asked for before anything else
constexpr int kShared = 220 << 10;   // a deep ring gains more than room for the next kernel would
constexpr int kHelped = kWarps / 2;  // so many streams have a warp of their own that asks for weights

// How the work is cut: a thread group has every gridDim.x-th unit, its streams (a warp each) take turns with those.
// Stages are so many groups of 64 inputs.
struct Cut {
  int units, streams, stages, groups, stage_bytes;
};

// What a stream asks memory for next.
template <class Format, bool Gated>
struct Asking {
  const Products& work;
  Cut cut;
  int unit, side = 0, input = 0;
  const std::byte* from = nullptr;

  __device__ Asking(const Products& all, const Cut& how, int stream)
      : work(all), cut(how), unit(static_cast<int>(blockIdx.x) + stream * static_cast<int>(gridDim.x)) {}

  __device__ bool done() const { return unit >= cut.units; }
  __device__ void next(uint32_t to, uint32_t barrier) {  // by one lane
    if (input == 0) {
      const Place at = place_of<Gated>(work, unit, side);
      from = work.parts[at.part].weights + int64_t{at.panel} * chunks_of(work.cols) * Format::kBytes;
    }
    const int left = static_cast<int>(chunks_of(work.cols - input)) * Format::kBytes;
    const int bytes = left < cut.stage_bytes ? left : cut.stage_bytes;
    barrier_expect(barrier, static_cast<uint32_t>(bytes));
    copy_bytes(to, from, static_cast<uint32_t>(bytes), barrier);
    from += bytes;
    input += cut.groups * kChunkInputs;
    if (input < work.cols) return;
    input = 0;
    side = Gated && side == 0 ? 1 : 0;
    if (side == 0) unit += cut.streams * static_cast<int>(gridDim.x);
  }
};

// A stream's ring: of every stage a barrier that it is full and, where another warp asks, one that it is free.
struct Ring {
  char* stages;
  uint32_t barriers;
  int stage_bytes, count, stage = 0;
  uint32_t round = 0;

  __device__ char* at() const { return stages + stage * stage_bytes; }
  __device__ uint32_t full() const { return barriers + static_cast<uint32_t>(stage) * 16; }
  __device__ uint32_t free() const { return full() + 8; }
  __device__ void next() {
    if (++stage == count) stage = 0, round ^= 1;
  }
};

template <class Format, bool Gated>
__device__ void multiply_stream(const Products& work, const Cut& cut, Ring ring, Asking<Format, Gated>& ahead,
                                int stream, const char* inputs, bool helped) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Lanes beyond the last row compute the first one again; nobody asks for it.
  const int row = lane / 4 < work.in.rows ? lane / 4 : 0;
  const uint4* mine = reinterpret_cast<const uint4*>(inputs + row * input_pitch(work.cols)) + lane % 4;
  const int groups = whole(work.cols) / kChunkInputs;
  float kept[4] = {};
  for (int unit = static_cast<int>(blockIdx.x) + stream * static_cast<int>(gridDim.x); unit < cut.units;
       unit += cut.streams * static_cast<int>(gridDim.x)) {
#pragma unroll 1
    for (int side = 0; side < (Gated ? 2 : 1); ++side) {
      const Place at = place_of<Gated>(work, unit, side);
      if (!Gated && work.residual != nullptr) read_residual(work, at, kept, lane);
      Sums sums;
      for (int group = 0; group < groups; group += cut.groups) {
        barrier_wait(ring.full(), ring.round);
        take<Format>(sums, ring.at(), min(cut.groups, groups - group), mine + group * 8, lane);
        __syncwarp();
        if (lane == 0) {
          if (helped)
            barrier_arrive(ring.free());
          else if (!ahead.done())
            ahead.next(shared_address(ring.at()), ring.full());
        }
        ring.next();
      }
      finish<Gated>(work, at, side, sums, kept, lane);
    }
  }
}

template <class Format, bool Gated, bool Normed>
__global__ void __launch_bounds__(kThreads, 2)
    few_rows_kernel(const __grid_constant__ Products work, const __grid_constant__ Norm norm, Cut cut) {
  extern __shared__ __align__(128) char shared[];
  __shared__ float room[kWarps];
  __shared__ __align__(16) uint64_t barriers[kWarps * kMostStages * 2];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const bool helped = cut.streams <= kHelped;
  const int stream = helped ? warp % kHelped : warp;
  const bool mine = stream < cut.streams, asking = mine && (!helped || warp >= kHelped), asks = asking && lane == 0;
  const Ring whole_ring = {shared + stream * cut.stages * cut.stage_bytes,
                           shared_address(barriers + stream * kMostStages * 2), cut.stage_bytes, cut.stages};
  Ring ring = whole_ring, early = whole_ring;
  Asking<Format, Gated> ahead(work, cut, stream);
  if (asking) {
    for (int i = lane; i < 2 * cut.stages; i += 32) barrier_begin(ring.barriers + static_cast<uint32_t>(i) * 8, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncwarp();
  }
  // The first ring full: some before inputs are seen to, which all threads take part in, and the rest after.
  auto fill = [&](int most) {
    for (; asks && most > 0 && early.round == 0 && !ahead.done(); early.next(), --most)
      ahead.next(shared_address(early.at()), early.full());
  };
  fill(kFirstStages);
  char* inputs = shared + cut.streams * cut.stages * cut.stage_bytes;
  prepare_input<typename Format::Number, Normed>(work, norm, inputs, room);
  fill(kMostStages);
  if (!mine) return;
  if (!helped || warp < kHelped) return multiply_stream<Format, Gated>(work, cut, ring, ahead, stream, inputs, helped);
  for (; asks && !ahead.done(); ring.next()) {
    barrier_wait(ring.free(), ring.round);
    ahead.next(shared_address(ring.at()), ring.full());
  }
}

int64_t input_bytes(int64_t rows, int64_t cols) { return rows * input_pitch(static_cast<int>(cols)) + 64; }
constexpr int64_t kLeastRing = 60 << 10;

template <class Format, bool Gated, bool Normed>
void start(cudaStream_t stream, const Products& work) {
  static const bool prepared = prepare(few_rows_kernel<Format, Gated, Normed>, kShared);
  static_cast<void>(prepared);
  Cut cut = {};
  for (int i = 0; i < (Gated ? 1 : work.count); ++i) cut.units += (work.parts[i].rows + kPanel - 1) / kPanel;
  const int grid = cut.units < multiprocessors() ? cut.units : multiprocessors();
  const int of_one = (cut.units + grid - 1) / grid, rounds = (of_one + kWarps - 1) / kWarps;
  cut.streams = (of_one + rounds - 1) / rounds;
  cut.groups = cut.streams <= kHelped ? Format::kMostGroups : Format::kLeastGroups;
  cut.stage_bytes = cut.groups * Format::kBytes;
  const int64_t other = input_bytes(work.in.rows, work.cols);
  const int64_t fit = (kShared - other) / (cut.streams * cut.stage_bytes);
  cut.stages = static_cast<int>(fit < kMostStages ? fit : kMostStages);
  const Norm none;
  launch(stream, few_rows_kernel<Format, Gated, Normed>, static_cast<unsigned>(grid), kThreads,
         static_cast<size_t>(other + cut.streams * cut.stages * cut.stage_bytes), work,
         work.norm != nullptr ? *work.norm : none, cut);
}

template <class Format>
void start_either(cudaStream_t stream, const Products& work) {
  if (work.norm != nullptr)
    return work.gated ? start<Format, true, true>(stream, work) : start<Format, false, true>(stream, work);
  return work.gated ? start<Format, true, false>(stream, work) : start<Format, false, false>(stream, work);
}

}  // namespace

bool few_rows_fit(int32_t rows, int32_t cols, bool norm) {
  return rows <= kFewRows && input_bytes(rows, cols) + kLeastRing <= kShared && (!norm || cols <= kWidestInput);
}

void few_rows(cudaStream_t stream, const Products& work) {
  switch (work.type) {
    case DType::f16:
      return start_either<Halves<__half>>(stream, work);
    case DType::q8_0:
      return start_either<Quantised<DType::q8_0>>(stream, work);
    case DType::q4_0:
      return start_either<Quantised<DType::q4_0>>(stream, work);
    case DType::q4_k:
      return start_either<Quantised<DType::q4_k>>(stream, work);
    default:
      return start_either<Halves<__nv_bfloat16>>(stream, work);
  }
}

}  // namespace millrace::cuda
