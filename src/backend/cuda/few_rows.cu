// Products of at most eight rows, at the speed of memory. A warp takes a panel of sixteen outputs through a segment of
// its inputs, or all of them; its weights come in stretches of a few kilobytes through a ring of its own in shared
// memory, so many ahead that memory never waits. The last of a panel's warps adds the segments up. Part of the first
// ring full is asked for before the kernel in front has ended: weights do not depend on it.
#include <algorithm>

#include "backend/cuda/few_rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kShared = 220 << 10;  // a deep ring gains more than room for the next kernel would

// How the work is cut: a thread block has every gridDim.x-th unit (a panel, or the two of a gate), a unit has a task
// for each side and segment, and the block's streams, a warp each, take turns with its tasks. Stages are so many groups
// of 64 inputs.
struct Cut {
  int units, task_bits, segment_bits;
  int chunks;   // groups of all inputs
  int segment;  // groups of one; the last may have fewer
  int streams, stages, groups, stage_bytes;
  int first, second;   // stages asked for before inputs are, and while they are on their way
  int inputs, counts;  // where in shared memory inputs lie, and behind them Parts
  int units_each;      // of a thread block, at most
};

// Products behind a norm that are not gated are those of attention's inputs, whose outputs are few: more warps, so that
// their segments are not taken one behind the other.
template <class Format, bool Gated, bool Normed>
constexpr int kWarps = Normed && !Gated ? Format::kFewWarps : Format::kWarps;

struct Task {
  int number;  // in this thread block

  __device__ int unit(const Cut& cut) const {
    return static_cast<int>(blockIdx.x) + (number >> cut.task_bits) * static_cast<int>(gridDim.x);
  }
  __device__ int within(const Cut& cut) const { return number & ((1 << cut.task_bits) - 1); }
  __device__ int side(const Cut& cut) const { return within(cut) >> cut.segment_bits; }
  __device__ int first_group(const Cut& cut) const {
    return (within(cut) & ((1 << cut.segment_bits) - 1)) * cut.segment;
  }
  __device__ int groups(const Cut& cut) const { return min(cut.segment, cut.chunks - first_group(cut)); }
};

// What a stream asks memory for next.
template <class Format, bool Gated>
struct Asking {
  const Products& work;
  Cut cut;
  Task task;
  int left = 0;  // groups of the task; none: there is no other task
  const std::byte* from = nullptr;
  uint64_t policy = read_once();

  __device__ Asking(const Products& all, const Cut& how, int stream) : work(all), cut(how), task{stream} { find(); }

  __device__ void find() {
    if (task.unit(cut) >= cut.units) return;
    const Place at = place_of<Gated>(work, task.unit(cut), task.side(cut));
    from = work.parts[at.part].weights + int64_t{at.panel * cut.chunks + task.first_group(cut)} * Format::kBytes;
    left = task.groups(cut);
  }
  __device__ bool done() const { return left == 0; }
  __device__ void next(uint32_t to, uint32_t barrier, bool first_lane) {
    const int groups = min(left, cut.groups), bytes = groups * Format::kBytes;
    if (first_lane) {
      barrier_expect(barrier, static_cast<uint32_t>(bytes));
      copy_bytes(to, from, static_cast<uint32_t>(bytes), barrier, policy);
    }
    from += bytes, left -= groups;
    if (left > 0) return;
    task.number += cut.streams;
    find();
  }
};

// A stream's ring: of every stage a barrier that it is full.
struct Ring {
  char* stages;
  uint32_t barriers;
  int stage_bytes, count, stage = 0;
  uint32_t round = 0;

  __device__ char* at() const { return stages + stage * stage_bytes; }
  __device__ uint32_t full() const { return barriers + static_cast<uint32_t>(stage) * 8; }
  __device__ void next() {
    if (++stage == count) stage = 0, round ^= 1;
  }
};

// Sums of tasks until the last one of a unit is there: [tasks][rows][kPanel], and how many of a unit's are.
struct Parts {
  float* sums;
  int* counts;
};

// The unit's results, if this was its last task.
template <bool Gated>
__device__ __forceinline__ void hand_in(const Products& work, const Cut& cut, const Parts& parts, Task task,
                                        const Sums& sums, const float (&kept)[4], int lane) {
  const int size = work.in.rows * kPanel, tasks = 1 << cut.task_bits, segments = 1 << cut.segment_bits;
  float* mine = parts.sums + task.number * size;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = row_of(lane, i);
    if (token < work.in.rows) mine[token * kPanel + output_of(lane, i)] = sums.all[i];
  }
  __threadfence_block();
  __syncwarp();
  int before = lane == 0 ? atomicAdd(parts.counts + (task.number >> cut.task_bits), 1) : 0;
  before = __shfl_sync(~0u, before, 0);
  if (before != tasks - 1) return;
  __threadfence_block();
  const float* first = parts.sums + (task.number - task.within(cut)) * size;
  Sums sides[Gated ? 2 : 1];
#pragma unroll
  for (int side = 0; side < (Gated ? 2 : 1); ++side) {
#pragma unroll 1
    for (int segment = 0; segment < segments; ++segment, first += size) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = row_of(lane, i);
        if (token >= work.in.rows) continue;
        sides[side].all[i] += first[token * kPanel + output_of(lane, i)];
      }
    }
  }
  finish<Gated>(work, task.unit(cut), sides, kept, lane);
}

template <class Format, bool Gated>
__device__ void multiply_stream(const Products& work, const Cut& cut, Ring ring, Asking<Format, Gated>& ahead,
                                int stream, const char* inputs, const Parts& parts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Lanes beyond the last row compute the first one again; nobody asks for it.
  const int row = lane / 4 < work.in.rows ? lane / 4 : 0;
  const uint4* mine = reinterpret_cast<const uint4*>(inputs + row * input_pitch(work.cols)) + lane % 4;
  float kept[4] = {};
  for (Task task = {stream}; task.unit(cut) < cut.units; task.number += cut.streams) {
    if (!Gated && work.residual != nullptr) read_residual(work, task.unit(cut), kept, lane);
    Sums sums[1];
    const uint4* from = mine + task.first_group(cut) * kChunkPieces;
    for (int left = task.groups(cut); left > 0; left -= cut.groups, from += cut.groups * kChunkPieces) {
      barrier_wait(ring.full(), ring.round);
      take<Format>(sums[0], ring.at(), min(cut.groups, left), from, lane);
      __syncwarp();
      if (!ahead.done()) ahead.next(shared_address(ring.at()), ring.full(), lane == 0);
      ring.next();
    }
    if (Gated || cut.task_bits > 0) {
      hand_in<Gated>(work, cut, parts, task, sums[0], kept, lane);
    } else {
      if constexpr (!Gated) finish<false>(work, task.unit(cut), sums, kept, lane);
    }
  }
}

template <class Format, bool Gated, bool Normed>
__global__ void __launch_bounds__(32 * kWarps<Format, Gated, Normed>, 1)
    few_rows_kernel(const __grid_constant__ Products work, const __grid_constant__ Norm norm, Cut cut) {
  constexpr int kThreads = 32 * kWarps<Format, Gated, Normed>;
  extern __shared__ __align__(128) char shared[];
  __shared__ float room[kRowThreads / 32];
  __shared__ __align__(16) uint64_t barriers[kWarps<Format, Gated, Normed> * kMostStages];
  // The same for all lanes, and said so: what follows from it is kept once for a warp.
  const int lane = static_cast<int>(threadIdx.x) % 32, stream = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const bool mine = stream < cut.streams;
  const Ring ring = {shared + stream * cut.stages * cut.stage_bytes, shared_address(barriers + stream * kMostStages),
                     cut.stage_bytes, cut.stages};
  Asking<Format, Gated> ahead(work, cut, stream);
  if (mine) {
#pragma unroll 1
    for (int i = 0; lane == 0 && i < cut.stages; ++i) barrier_begin(ring.barriers + static_cast<uint32_t>(i) * 8, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncwarp();
  }
  // The first ring full: some before inputs, the rest behind them, or they would wait until it has arrived.
  Ring early = ring;
  auto fill = [&](int most) {
    for (; mine && most > 0 && early.round == 0 && !ahead.done(); early.next(), --most)
      ahead.next(shared_address(early.at()), early.full(), lane == 0);
  };
  fill(cut.first);
  char* inputs = shared + cut.inputs;
  int* counts = reinterpret_cast<int*>(shared + cut.counts);
  const Parts parts = {reinterpret_cast<float*>(counts + cut.units_each), counts};
  if (Gated || cut.task_bits > 0) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < cut.units_each; i += kThreads) counts[i] = 0;
  }
  prepare_input<Format, Normed, (kThreads <= 512)>(work, norm, inputs, room, [&] { fill(cut.second); });
  if constexpr (Format::kInputsFirst) fill(kMostStages);
  if (mine) multiply_stream<Format, Gated>(work, cut, ring, ahead, stream, inputs, parts);
}

constexpr int64_t kLeastRing = 60 << 10;
int64_t input_bytes(int64_t rows, int64_t cols) { return rows * input_pitch(static_cast<int>(cols)) + 64; }

int bits_of(int power) {
  int bits = 0;
  while (1 << bits < power) ++bits;
  return bits;
}

template <class Format, bool Gated, bool Normed>
void start(cudaStream_t stream, const Products& work) {
  constexpr int kMostStreams = kWarps<Format, Gated, Normed>;
  static const bool prepared = prepare(few_rows_kernel<Format, Gated, Normed>, kShared);
  static_cast<void>(prepared);
  Cut cut = {};
  for (int i = 0; i < (Gated ? 1 : work.count); ++i) cut.units += (work.parts[i].rows + kPanel - 1) / kPanel;
  cut.segment_bits = bits_of(work.segments);
  cut.task_bits = cut.segment_bits + (Gated ? 1 : 0);
  cut.chunks = static_cast<int>(chunks_of(work.cols));
  cut.segment = segment_chunks(work.cols, work.segments);
  const int grid = cut.units < multiprocessors() ? cut.units : multiprocessors();
  cut.units_each = (cut.units + grid - 1) / grid;
  const int tasks = cut.units_each << cut.task_bits;
  const int rounds = (tasks + kMostStreams - 1) / kMostStreams;
  cut.streams = (tasks + rounds - 1) / rounds;
  cut.groups = cut.streams <= kMostStreams / 2 ? Format::kMostGroups : Format::kLeastGroups;
  int64_t other = input_bytes(work.in.rows, work.cols);
  if (cut.task_bits > 0) other += (int64_t{cut.units_each} + int64_t{tasks} * work.in.rows * kPanel) * 4;
  auto fitting = [&] { return (kShared - other) / (cut.streams * cut.groups * Format::kBytes); };
  if (cut.segment <= Format::kMostGroups) cut.groups = cut.segment;
  if (Normed && !Gated) cut.groups = std::min(cut.groups, Format::kFewGroups);
  const int needed = rounds * ((cut.segment + cut.groups - 1) / cut.groups);
  while (cut.groups > 1 && fitting() < std::min(Format::kLeastStages, needed)) cut.groups /= 2;
  while (cut.streams > 1 && fitting() < 1) cut.streams /= 2;
  cut.stage_bytes = cut.groups * Format::kBytes;
  cut.stages = static_cast<int>(std::clamp<int64_t>(fitting(), 1, kMostStages));
  const int bytes = cut.streams * cut.stage_bytes;  // of a stage of all
  cut.first = std::max(1, Format::first_bytes(work.cols) / bytes);
  // Several rows take long to bring: memory should have something to do meanwhile.
  const int early = work.in.rows > 1 ? kMostStages : Format::early_stages(Gated, Normed, bytes);
  cut.second = std::max(0, early - cut.first);
  cut.inputs = cut.streams * cut.stages * cut.stage_bytes;
  cut.counts = cut.inputs + static_cast<int>(input_bytes(work.in.rows, work.cols));
  const Norm none;
  launch(stream, few_rows_kernel<Format, Gated, Normed>, static_cast<unsigned>(grid), 32 * kMostStreams,
         static_cast<size_t>(other + cut.inputs), work, work.norm != nullptr ? *work.norm : none, cut);
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
  by_format(work.type, [&]<class Format>(FormatIs<Format>) { start_either<Format>(stream, work); });
}

cudaError_t load_few_rows() { return load_kernels(); }

}  // namespace millrace::cuda
