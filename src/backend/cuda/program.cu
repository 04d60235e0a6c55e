// One kernel for a whole step of a few tokens. A thread group on every multiprocessor goes through the tasks in order;
// between tasks all of them wait for each other. Beside its eight working warps each has one that only asks for
// weights, task after task, as fast as its ring in shared memory empties: it never waits for results, so memory is busy
// while others wait, read inputs or attend.
#include "backend/cuda/attend_step.cuh"
#include "backend/cuda/few_rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kProgramThreads = kThreads + 32;
constexpr int kMostSlots = 32;
constexpr int kMostStreams = 2 * kWarps;  // panels at a time
constexpr int kSharedBytes = 224 << 10;
constexpr int kLeastRingBytes = 96 << 10;
constexpr int kFlightBytes = 112 << 10;  // on their way at a time

__device__ inline unsigned load_arrived(const unsigned* counter) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

__device__ inline void arrive(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

// Until the task before is done everywhere; before the first task, the kernel before.
struct Waiting {
  const unsigned* arrived;
  unsigned goal;

  __device__ void operator()() const {
    if (goal == 0) return wait_for_previous();
    if (threadIdx.x == 0) {
      while (load_arrived(arrived) < goal) {
      }
    }
    rows_sync();
  }
};

// The ring of weights: stages one after the other in the order they are used. Of every slot a barrier that it is full
// and one that it is free.
struct Slots {
  char* ring;
  uint32_t barriers;
  int count, bytes;

  __device__ char* at(int slot) const { return ring + slot * bytes; }
  __device__ uint32_t full(int slot) const { return barriers + static_cast<uint32_t>(slot) * 16; }
  __device__ uint32_t free(int slot) const { return full(slot) + 8; }
};

// A place in the endless row of stages.
struct Turnstile {
  int slot;
  uint32_t parity;

  __device__ void advance(int stages, int slots) {
    for (slot += stages; slot >= slots; slot -= slots) parity ^= 1;
  }
};

// A thread group's share of a task: every gridDim.x-th unit; `streams` of them at a time, a warp each.
__device__ inline int units_here(const Task& task) {
  const int first = static_cast<int>(blockIdx.x), stride = static_cast<int>(gridDim.x);
  return task.units > first ? (task.units - first + stride - 1) / stride : 0;
}

__device__ inline const std::byte* panel_of(const Products& work, int unit, int side) {
  const Place at = work.gated ? place_of<true>(work, unit, side) : place_of<false>(work, unit, side);
  return work.parts[at.part].weights + at.panel * panel_bytes(work.type, work.cols);
}

// Asks for all weights of all tasks. One warp. Only so many stages are on their way at a time as keep memory busy:
// whatever else is read would wait behind more of them.
__device__ void ask(const Task* tasks, int count, const Slots& slots, int most, const std::byte** panels) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Turnstile at = {0, 1}, landed = {0, 0};
  int asked = 0;
  for (int i = 0; i < count; ++i) {
    const Task& task = tasks[i];
    if (task.kind != Task::Kind::products) continue;
    if (task.normed && task.norm.weight != nullptr) {  // what is read in between comes late
      for (int line = lane * 32; line < task.work.cols; line += 32 * 32)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(task.norm.weight + line));
    }
    const int sides = task.work.gated ? 2 : 1, mine = units_here(task);
    const int bytes = static_cast<int>(panel_bytes(task.work.type, task.work.cols)), stage = task.stage_bytes;
    for (int first = 0; first < mine; first += task.streams) {
      const int together = min(task.streams, mine - first) * sides;
      __syncwarp();
      if (lane < together) {
        const int unit = static_cast<int>(blockIdx.x) + (first + lane / sides) * static_cast<int>(gridDim.x);
        panels[lane] = panel_of(task.work, unit, lane % sides);
      }
      __syncwarp();
      if (lane != 0) continue;
      for (int offset = 0; offset < bytes; offset += stage) {
        const auto now = static_cast<uint32_t>(min(stage, bytes - offset));
        for (int j = 0; j < together; ++j) {
          if (asked++ >= most) {
            barrier_wait(slots.full(landed.slot), landed.parity);
            landed.advance(1, slots.count);
          }
          barrier_wait(slots.free(at.slot), at.parity);
          barrier_expect(slots.full(at.slot), now);
          copy_bytes(shared_address(slots.at(at.slot)), panels[j] + offset, now, slots.full(at.slot));
          at.advance(1, slots.count);
        }
      }
    }
  }
}

// A panel's stages on their way through a warp: what comes next is read before this is multiplied, over the ends of
// stages too, so that the chain of additions never waits for shared memory. Multiplies the stage at `at`, whose first
// chunk is in `even` already, and leaves the first chunk of the warp's next one, `step` stages further, there.
template <class Format>
__device__ __forceinline__ void take_stage(const Slots& slots, Turnstile& at, int step, int here, const uint4* inputs,
                                           const uint4* next_inputs, int lane, Group<Format>& even,
                                           typename Format::Sums& sums) {
  constexpr int kWhole = Format::kMostGroups;
  const char* stage = slots.at(at.slot);
  const uint32_t free = slots.free(at.slot);
  Group<Format> odd;
  at.advance(step, slots.count);
  auto next = [&] {
    if (next_inputs == nullptr) return;
    barrier_wait(slots.full(at.slot), at.parity);
    even.load(slots.at(at.slot), 0, next_inputs, lane);
  };
  if (here == kWhole) {
#pragma unroll
    for (int i = 0; i < kWhole; i += 2) {
      odd.load(stage, i + 1, inputs, lane);
      even.multiply_into(sums);
      if (i + 2 < kWhole)
        even.load(stage, i + 2, inputs, lane);
      else
        next();
      odd.multiply_into(sums);
    }
  } else {  // the last of a panel, if at all
    even.multiply_into(sums);
#pragma unroll 1
    for (int i = 1; i < here; ++i) {
      odd.load(stage, i, inputs, lane);
      odd.multiply_into(sums);
    }
    next();
  }
  __syncwarp();
  if (lane == 0) barrier_arrive(free);
}

// A warp's panels of a task. `at`: where the task's stages begin; moved behind them.
template <class Format, bool Gated>
__device__ __forceinline__ void multiply_units(const Task& task, const Slots& slots, Turnstile& at,
                                               const char* inputs) {
  static_assert(Format::kMostGroups % 2 == 0);
  const Products& work = task.work;
  constexpr int kSides = Gated ? 2 : 1;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  // Lanes beyond the last row compute the first one again; nobody asks for it.
  const int row = lane / 4 < work.in.rows ? lane / 4 : 0;
  const uint4* in = reinterpret_cast<const uint4*>(inputs + row * input_pitch(work.cols)) + lane % 4;
  const int chunks = whole(work.cols) / kChunkInputs, stages = (chunks + task.stage_chunks - 1) / task.stage_chunks;
  const int mine = units_here(task);
  for (int first = 0; first < mine; first += task.streams) {
    const int together = min(task.streams, mine - first) * kSides;
    if (warp * kSides < together) {
      const int unit = static_cast<int>(blockIdx.x) + (first + warp) * static_cast<int>(gridDim.x);
      const Place place = place_of<Gated>(work, unit, 0);
      float kept[4] = {};
      if (!Gated && work.residual != nullptr) read_residual<Format>(work, place, kept, lane);
      typename Format::Sums sums, other;
      Turnstile here = at;
      here.advance(warp * kSides, slots.count);
      barrier_wait(slots.full(here.slot), here.parity);
      Group<Format> first_chunk;
      first_chunk.load(slots.at(here.slot), 0, in, lane);
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; chunk += task.stage_chunks) {
        const int now = min(task.stage_chunks, chunks - chunk);
        const uint4* from = in + chunk * 8;
        const uint4* next = chunk + now < chunks ? from + now * 8 : nullptr;
        if constexpr (Gated) take_stage<Format>(slots, here, 1, now, from, from, lane, first_chunk, sums);
        take_stage<Format>(slots, here, Gated ? together - 1 : together, now, from, next, lane, first_chunk,
                           Gated ? other : sums);
      }
      finish<Format, Gated>(work, place, 0, sums, kept, lane);
      if constexpr (Gated) finish<Format, Gated>(work, {1, unit}, 1, other, kept, lane);
    }
    at.advance(together * stages, slots.count);
  }
}

template <class Format>
__device__ __forceinline__ void multiply_task(const Task& task, const Slots& slots, Turnstile& at, char* inputs,
                                              float* room, const Waiting& wait) {
  if (task.normed)
    prepare_input<typename Format::Number, true>(task.work, task.norm, inputs, room, wait);
  else
    prepare_input<typename Format::Number, false>(task.work, task.norm, inputs, room, wait);
  if (task.work.gated)
    multiply_units<Format, true>(task, slots, at, inputs);
  else
    multiply_units<Format, false>(task, slots, at, inputs);
}

// ---- the kernel

constexpr int kTaskWords = sizeof(Task) / 4;
static_assert(sizeof(Task) % 16 == 0 || sizeof(Task) % 4 == 0);
constexpr int kWordsEach = (kTaskWords + kThreads - 1) / kThreads;

// For weights of one format, and bfloat16 beside them.
template <class Format>
__global__ void __launch_bounds__(kProgramThreads, 1)
    program_kernel(const Task* tasks, int count, int slot_count, int slot_bytes, int most, unsigned* arrived) {
  extern __shared__ __align__(128) char shared[];
  __shared__ __align__(16) uint64_t barriers[kMostSlots * 2];
  __shared__ __align__(16) uint32_t words[2][kTaskWords];
  __shared__ const std::byte* panels[kMostStreams];
  __shared__ float room[kWarps];
  const int thread = static_cast<int>(threadIdx.x), grid = static_cast<int>(gridDim.x);
  const Slots slots = {shared, shared_address(barriers), slot_count, slot_bytes};
  if (thread < 2 * slot_count) barrier_begin(slots.barriers + static_cast<uint32_t>(thread) * 8, 1);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
  if (thread >= kThreads) return ask(tasks, count, slots, most, panels);
  char* area = shared + slot_count * slot_bytes;
  auto word = [&](int task, int i) { return reinterpret_cast<const uint32_t*>(tasks + task)[i]; };
  for (int i = thread; i < kTaskWords; i += kThreads) words[0][i] = word(0, i);
  rows_sync();
  Turnstile at = {0, 0};
  for (int i = 0; i < count; ++i) {
    uint32_t next[kWordsEach];
#pragma unroll
    for (int j = 0; j < kWordsEach; ++j) {
      if (i + 1 < count && thread + j * kThreads < kTaskWords) next[j] = word(i + 1, thread + j * kThreads);
    }
    const Waiting wait = {arrived, static_cast<unsigned>(i * grid)};
    const Task& task = *reinterpret_cast<const Task*>(words[i % 2]);
    if (task.kind == Task::Kind::attend)
      attend_task(task.attend, area, wait);
    else if (task.work.type == DType::bf16)
      multiply_task<Halves<__nv_bfloat16>>(task, slots, at, area, room, wait);
    else
      multiply_task<Format>(task, slots, at, area, room, wait);
#pragma unroll
    for (int j = 0; j < kWordsEach; ++j) {
      if (i + 1 < count && thread + j * kThreads < kTaskWords) words[(i + 1) % 2][thread + j * kThreads] = next[j];
    }
    rows_sync();
    if (thread == 0 && i + 1 < count) arrive(arrived);
  }
  if (thread == 0) {  // the last one leaves zero behind
    const unsigned before = atomicAdd(arrived, 1u);
    if (before + 1 == static_cast<unsigned>(count * grid)) *arrived = 0;
  }
}

int64_t inputs_of(const Products& work) { return int64_t{work.in.rows} * input_pitch(work.cols) + 64; }

int stage_chunks(DType type) {
  return packs_quantised(type) ? Quantised<DType::q8_0>::kMostGroups : Halves<__half>::kMostGroups;
}

template <class Format>
void start(cudaStream_t stream, const Task* tasks, int32_t count, const Task* place, unsigned* arrived) {
  static const bool prepared = prepare(program_kernel<Format>, kSharedBytes);
  static_cast<void>(prepared);
  int64_t area = 0;
  int slot_bytes = 1024;
  for (int32_t i = 0; i < count; ++i) {
    const bool products = tasks[i].kind == Task::Kind::products;
    area = std::max(area, products ? inputs_of(tasks[i].work) : int64_t{kAttendAreaBytes});
    if (products) slot_bytes = std::max(slot_bytes, tasks[i].stage_bytes);
  }
  area = (area + 127) / 128 * 128;
  slot_bytes = (slot_bytes + 127) / 128 * 128;
  const int slots = static_cast<int>(std::min<int64_t>(kMostSlots, (kSharedBytes - area) / slot_bytes));
  launch(stream, program_kernel<Format>, static_cast<unsigned>(multiprocessors()), kProgramThreads,
         static_cast<size_t>(area + int64_t{slots} * slot_bytes), place, count, slots, slot_bytes,
         std::min(slots, std::max(2, kFlightBytes / slot_bytes)), arrived);
}

}  // namespace

bool program_takes(const Products& work) {
  return work.in.rows <= kProgramRows && inputs_of(work) + kLeastRingBytes <= kSharedBytes &&
         (work.norm == nullptr || work.cols <= kWidestInput);
}

Task task_of(const Products& work) {
  Task task = {.kind = Task::Kind::products, .normed = work.norm != nullptr, .work = work};
  if (work.norm != nullptr) task.norm = *work.norm;
  task.work.norm = nullptr;  // the host's
  for (int i = 0; i < (work.gated ? 1 : work.count); ++i)
    task.units += static_cast<int32_t>(panels_of(work.parts[i].rows));
  const int of_one = (task.units + multiprocessors() - 1) / multiprocessors(), rounds = (of_one + kWarps - 1) / kWarps;
  task.streams = (of_one + rounds - 1) / rounds;
  task.stage_chunks = stage_chunks(work.type);
  task.stage_bytes = task.stage_chunks * chunk_bytes(work.type);
  return task;
}

Task task_of(const Attending& attend) { return {.kind = Task::Kind::attend, .attend = attend}; }

bool program_mixes(const Task* tasks, int32_t count, const Task& next) {
  if (next.kind != Task::Kind::products || next.work.type == DType::bf16) return false;
  for (int32_t i = 0; i < count; ++i) {
    const DType other = tasks[i].work.type;
    if (tasks[i].kind == Task::Kind::products && other != DType::bf16 && other != next.work.type) return true;
  }
  return false;
}

void run_program(cudaStream_t stream, const Task* tasks, int32_t count, const Task* place, unsigned* arrived) {
  for (int32_t i = 0; i < count; ++i) {
    if (tasks[i].kind != Task::Kind::products) continue;
    switch (tasks[i].work.type) {
      case DType::f16:
        return start<Halves<__half>>(stream, tasks, count, place, arrived);
      case DType::q8_0:
        return start<Quantised<DType::q8_0>>(stream, tasks, count, place, arrived);
      case DType::q4_0:
        return start<Quantised<DType::q4_0>>(stream, tasks, count, place, arrived);
      case DType::q4_k:
        return start<Quantised<DType::q4_k>>(stream, tasks, count, place, arrived);
      default:
        break;
    }
  }
  start<Halves<__nv_bfloat16>>(stream, tasks, count, place, arrived);
}

}  // namespace millrace::cuda
