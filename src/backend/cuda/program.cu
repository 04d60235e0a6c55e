// One kernel for a whole step of a few tokens. A thread group on every multiprocessor goes through the tasks in order;
// between tasks all of them wait for each other. Beside its eight working warps each has one that only asks for
// weights, task after task, as fast as its ring in shared memory empties: it never waits for results, so memory is busy
// while others wait, read inputs or attend.
#include "backend/cuda/attend_chunk.cuh"
#include "backend/cuda/few_rows.cuh"
#include "backend/cuda/program.h"
#include "backend/cuda/turn.cuh"

namespace millrace::cuda {
namespace {

constexpr int kProgramThreads = kThreads + 32;
constexpr int kMostSlots = 32;
constexpr int kMostStreams = 2 * kWarps;  // panels at a time
constexpr int kSharedBytes = 224 << 10;
constexpr int kAttendWarps = 2;  // of a thread group
constexpr int kLeastRingBytes = 96 << 10;
constexpr int kFlightBytes = 40 << 10;  // on their way at a time

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

// A stretch of a panel's stages on its way through a warp: what comes next is read before this is multiplied, over the
// ends of stages too, so that the chain of additions never waits for shared memory.
template <class Format>
struct Flow {
  const Slots& slots;
  const uint4* inputs;  // of the warp's rows
  int lane, chunks, stage_chunks;
  Turnstile at;
  int chunk = 0;  // the stage's first
  Group<Format> two[2];

  __device__ void begin() {
    barrier_wait(slots.full(at.slot), at.parity);
    two[0].load(slots.at(at.slot), 0, inputs, lane);
  }
  // Multiplies the stage and leaves the first chunk of the next one, which is `step` stages further, in two[0].
  __device__ __forceinline__ void take(typename Format::Sums& sums, int step, int next_chunk) {
    constexpr int kWhole = Format::kMostGroups;
    const char* stage = slots.at(at.slot);
    const uint4* in = inputs + chunk * 8;
    const int here = min(stage_chunks, chunks - chunk), slot = at.slot;
    at.advance(step, slots.count);
    if (here == kWhole) {
#pragma unroll
      for (int i = 0; i < kWhole; ++i) {
        if (i + 1 < kWhole)
          two[(i + 1) % 2].load(stage, i + 1, in, lane);
        else
          next(next_chunk);
        two[i % 2].multiply_into(sums);
      }
    } else {
      for (int i = 0; i < here; ++i) {
        if (i > 0) two[0].load(stage, i, in, lane);
        two[0].multiply_into(sums);
      }
      next(next_chunk);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(slots.free(slot));
    chunk = next_chunk;
  }
  __device__ __forceinline__ void next(int next_chunk) {
    if (next_chunk >= chunks) return;
    barrier_wait(slots.full(at.slot), at.parity);
    two[0].load(slots.at(at.slot), 0, inputs + next_chunk * 8, lane);
  }
};

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
      Flow<Format> flow = {slots, in, lane, chunks, task.stage_chunks, at};
      flow.at.advance(warp * kSides, slots.count);
      flow.begin();
      for (int i = 0; i < stages; ++i) {
        const int chunk = flow.chunk;
        if constexpr (Gated) {
          flow.take(sums, 1, chunk);
          flow.take(other, together - 1, chunk + task.stage_chunks);
        } else {
          flow.take(sums, together, chunk + task.stage_chunks);
        }
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

// ---- attention

constexpr int kTilesOfChunk = kChunk / kKeys;
constexpr int kStages = 2;
template <class T, int D>
constexpr int kQueryBytes = 16 * Head<T, D>::kPitch;
template <class T, int D>
constexpr int kAttendBytes = kStages * 2 * Head<T, D>::kTileBytes + kQueryBytes<T, D>;  // of a warp

// One warp's share: every so many-th chunk of all sequences and kv heads.
template <class T, int D>
struct Chunks {
  using H = Head<T, D>;
  const Attending& task;
  uint32_t room;
  int lane, first, stride, count;  // of items

  struct Item {
    int sequence, kv_head, chunk, number;  // number: of the chunk among all
  };

  __device__ Chunks(const Attending& attend, char* area)
      : task(attend),
        room(shared_address(area) + threadIdx.x / 32 * kAttendBytes<T, D>),
        lane(static_cast<int>(threadIdx.x) % 32),
        first(static_cast<int>(blockIdx.x + threadIdx.x / 32 * gridDim.x)),
        stride(static_cast<int>(gridDim.x) * kAttendWarps) {
    const int items = task.first_item[task.step.sequences] * task.kv.kv_heads;
    count = items > first ? (items - first + stride - 1) / stride : 0;
  }
  __device__ Item item(int i) const {
    const int all = first + i * stride, number = all / task.kv.kv_heads;
    int sequence = 0;
    while (number >= task.first_item[sequence + 1]) ++sequence;
    return {sequence, all % task.kv.kv_heads, number - task.first_item[sequence], number};
  }
  __device__ int group() const { return task.attention.heads / task.kv.kv_heads; }
  __device__ uint32_t keys_at(int tile) const {
    return room + static_cast<uint32_t>(tile % kStages * 2 * H::kTileBytes);
  }
  __device__ uint32_t queries_at() const { return room + kStages * 2 * H::kTileBytes; }

  __device__ static const float* row_of(const View& view, int row) {  // products leave float32
    return reinterpret_cast<const float*>(static_cast<const char*>(view.data) + row * view.stride);
  }

  // Keeps the newest key and value.
  __device__ void keep_newest(const Item& at, int row) const {
    const Turn turn = {task.half, task.neighbours};
    const float2* table = reinterpret_cast<const float2*>(task.table) + int64_t{row} * turn.half;
    const float* k = row_of(task.k, row) + at.kv_head * D;
    const float* v = row_of(task.v, row) + at.kv_head * D;
    std::byte* key = slot(task.step, task.kv, row, at.kv_head, task.kv.k_offset, D);
    std::byte* value = slot(task.step, task.kv, row, at.kv_head, task.kv.v_offset, D);
#pragma unroll 2
    for (int pair = lane; pair < turn.half; pair += 32) {
      const int x = turn.first(pair), y = turn.second(pair);
      const float2 to = turned(table[pair], __ldcg(k + x), __ldcg(k + y));
      keep(task.kv.type, key, x, to.x);
      keep(task.kv.type, key, y, to.y);
    }
    for (int i = 2 * turn.half + lane; i < D; i += 32) keep(task.kv.type, key, i, __ldcg(k + i));
#pragma unroll
    for (int i = 0; i < D; i += 32) keep(task.kv.type, value, i + lane, __ldcg(v + i + lane));
    __threadfence();
    __syncwarp();
  }

  // Brings a tile: before results of other tasks can be read only if none of its positions is new.
  __device__ bool fetch(int tile, bool ready) const {
    if (tile >= count * kTilesOfChunk) return true;
    const Item at = item(tile / kTilesOfChunk);
    const int row = task.step.first_row[at.sequence], end = task.step.visible[row];
    const int newest = task.step.positions[row], from = at.chunk * kChunk + tile % kTilesOfChunk * kKeys;
    if (!ready && from + kKeys > min(end, newest)) return false;
    if (task.finish && newest >= from && newest < from + kKeys) keep_newest(at, row);
    fetch_tile<D, 32>(Pages(task.step, task.kv, at.sequence, at.kv_head), from, end, keys_at(tile),
                      keys_at(tile) + H::kTileBytes, lane);
    return true;
  }

  __device__ void put_query(int head, int dim, float value) const {
    const T half = as<T>(value);
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(queries_at() + static_cast<uint32_t>(head * H::kPitch + dim * 2)),
                 "h"(*reinterpret_cast<const uint16_t*>(&half))
                 : "memory");
  }
  __device__ void read_turned(uint4 (&q)[D / 16], const Item& at, int row) const {
    const int heads = group(), half = task.finish ? task.half : 0;
    const float* from = row_of(task.q, row) + at.kv_head * heads * D;
    const Turn turn = {half, task.neighbours};
    const float2* table = reinterpret_cast<const float2*>(task.table) + int64_t{row} * half;
#pragma unroll 4
    for (int i = lane; i < heads * half; i += 32) {
      const int head = i / half, pair = i % half, x = turn.first(pair), y = turn.second(pair);
      const float2 to = turned(table[pair], __ldcg(from + head * D + x), __ldcg(from + head * D + y));
      put_query(head, x, to.x);
      put_query(head, y, to.y);
    }
    const int rest = D - 2 * half;
    for (int i = lane; i < heads * rest; i += 32) {
      const int head = i / rest, dim = 2 * half + i % rest;
      put_query(head, dim, __ldcg(from + head * D + dim));
    }
    for (int i = lane; i < (16 - heads) * D; i += 32) put_query(heads + i / D, i % D, 0);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      q[k] = load_matrices(queries_at() + static_cast<uint32_t>(lane % 16 * H::kPitch + k * 32 + lane / 16 * 16));
    __syncwarp();
  }

  __device__ void close(const Item& at, int row) const {
    const int64_t partial = int64_t{task.attention.heads} * (D + 2);
    __threadfence();
    __syncwarp();
    unsigned* counter = task.finished + at.sequence * task.kv.kv_heads + at.kv_head;
    unsigned before = lane == 0 ? atomicAdd(counter, 1u) : 0;
    before = __shfl_sync(~0u, before, 0);
    const int chunks = task.first_item[at.sequence + 1] - task.first_item[at.sequence];
    if (before + 1 != static_cast<unsigned>(chunks)) return;
    if (lane == 0) *counter = 0;
    __threadfence();
    merge_chunks<D>(task.attention, task.partials + task.first_item[at.sequence] * partial, chunks,
                    at.kv_head * group(), group(), row, task.out);
  }

  __device__ void run(const Waiting& wait) const {
    bool early[kStages];
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      early[i] = fetch(i, false);
      copies_end();
    }
    wait();
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      if (!early[i]) fetch(i, true);
    }
    copies_end();
    const int g = lane / 4;
    for (int i = 0; i < count; ++i) {
      const Item at = item(i);
      const int row = task.step.first_row[at.sequence];
      uint4 q[D / 16];
      read_turned(q, at, row);
      const Sight sight[2] = {sight_of(task.step, task.attention, g, group(), row, group(), at.kv_head),
                              sight_of(task.step, task.attention, g + 8, group(), row, group(), at.kv_head)};
      H head;
      head.clear();
      for (int tile = i * kTilesOfChunk; tile < (i + 1) * kTilesOfChunk; ++tile) {
        if (tile == 0)
          copies_wait<0>();
        else
          copies_wait<1>();
        __syncwarp();
        const int from = at.chunk * kChunk + tile % kTilesOfChunk * kKeys;
        take_tile<T, D>(head, q, keys_at(tile), keys_at(tile) + H::kTileBytes, from, sight, task.attention.scale,
                        task.attention.softcap);
        __syncwarp();
        fetch(tile + kStages, true);
        copies_end();
      }
      close_chunk(head);
      write_partial<T, D>(head, group(),
                          task.partials + (int64_t{at.number} * task.attention.heads + at.kv_head * group()) * (D + 2));
      close(at, row);
    }
    copies_wait<0>();
  }
};

template <class T, int D>
__device__ __noinline__ void attend_chunks_of(const Attending& task, char* area, Waiting wait) {
  Chunks<T, D>(task, area).run(wait);
}

__device__ inline void attend_task(const Attending& task, char* area, const Waiting& wait) {
  if (threadIdx.x / 32 >= kAttendWarps) return wait();
  if (task.kv.type == DType::f16) {
    if (task.kv.k_dim == 64) return attend_chunks_of<__half, 64>(task, area, wait);
    return attend_chunks_of<__half, 128>(task, area, wait);
  }
  if (task.kv.k_dim == 64) return attend_chunks_of<__nv_bfloat16, 64>(task, area, wait);
  attend_chunks_of<__nv_bfloat16, 128>(task, area, wait);
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

int64_t attend_area() {
  return kAttendWarps * std::max(kAttendBytes<__nv_bfloat16, 128>, kAttendBytes<__nv_bfloat16, 64>);
}

template <class Format>
void start(cudaStream_t stream, const Task* tasks, int32_t count, const Task* place, unsigned* arrived) {
  static const bool prepared = prepare(program_kernel<Format>, kSharedBytes);
  static_cast<void>(prepared);
  int64_t area = 0;
  int slot_bytes = 1024;
  for (int32_t i = 0; i < count; ++i) {
    const bool products = tasks[i].kind == Task::Kind::products;
    area = std::max(area, products ? inputs_of(tasks[i].work) : attend_area());
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
