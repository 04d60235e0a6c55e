// Products of any number of rows. A thread group takes 128 outputs (of gated products: 64 of each half) for 64 or 128
// rows: two times four warps multiply, eight more bring the inputs; both they and the weights come through a ring in
// shared memory. Sums are those of packed.h. Where that would leave multiprocessors idle, slices go to thread groups of
// their own and are added, in order, by a second kernel.
#include <algorithm>
#include <type_traits>

#include "backend/cuda/packed.h"
#include "backend/cuda/products.cuh"
#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kUsers = 256;                    // threads that multiply: two times four warps
constexpr int kFillers = 256;                  // threads that bring inputs
constexpr int kChunkTiles = 4;                 // tiles of inputs in a stage
constexpr int kWarpBytes = kChunkTiles * 512;  // of weights in a stage: a warp's
constexpr int kWeightBytes = 8 * kWarpBytes;   // of eight warps

template <int Tokens>
struct Sizes {
  static constexpr int kInputBytes = Tokens * 128;
  static constexpr int kStageBytes = kWeightBytes + kInputBytes;
  static constexpr int kStages = Tokens == 64 ? 8 : 6;
  static constexpr int kShared = kStages * kStageBytes + 1024;
};

// What a thread group computes: outputs from `tile` (of sixteen) on of a part, slices [first_slice, end_slice).
struct Task {
  int part, tile, first_token, first_slice, end_slice, k_tiles;
};

// A chunk of inputs: kChunkTiles tiles of a slice, or what is left of it.
struct Place {
  int slice, begin, end;

  __device__ static Place first(const Task& task, int slice) {
    return {slice, slice_begin(task.k_tiles, slice), slice_begin(task.k_tiles, slice + 1)};
  }
  __device__ void next(const Task& task) {
    begin += kChunkTiles;
    while (begin >= end && slice < task.end_slice) *this = first(task, slice + 1);
  }
};

template <int Tokens, bool Gated>
__device__ Task task_of(const ManyRows& work) {
  Task task = {.part = 0,
               .tile = static_cast<int>(blockIdx.y) * (Gated ? 4 : 8),
               .first_token = static_cast<int>(blockIdx.x) * Tokens,
               .first_slice = 0,
               .end_slice = kSlices,
               .k_tiles = (work.cols + 15) / 16};
  if constexpr (!Gated) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int tiles = (work.parts[i].rows + 127) / 128 * 8;
      if (task.part == i && i + 1 < work.count && task.tile >= tiles) task.tile -= tiles, task.part = i + 1;
    }
  }
  if (work.partials != nullptr) {
    task.first_slice = static_cast<int>(blockIdx.z);
    task.end_slice = task.first_slice + 1;
  }
  return task;
}

// A chunk's weights for one warp: what its sixteen outputs have for it lies together. Asked for by one lane.
__device__ inline void fetch_weights(const std::byte* row_tile, const Task& task, const Place& place, uint32_t to,
                                     uint32_t barrier) {
  const int left = task.k_tiles - place.begin;
  const uint32_t bytes = static_cast<uint32_t>(left < kChunkTiles ? left : kChunkTiles) * 512;
  barrier_expect(barrier, row_tile != nullptr ? bytes : 0);
  if (row_tile != nullptr) copy_bytes(to, row_tile + int64_t{place.begin} * 512, bytes, barrier);
}

// A chunk's inputs, a row's sixteenths turned by its number as matrix instructions want them. Past the end of the slice
// they are zero: whatever weights lie there, nothing is added.
template <int Tokens>
__device__ void fetch_inputs(const ManyRows& work, const Task& task, const Place& place, uint32_t to) {
  const int thread = static_cast<int>(threadIdx.x) - kUsers, eighth = thread % 8, col = place.begin * 16 + eighth * 8;
  const bool inside = col < work.cols && col < place.end * 16;
  const int first = task.first_token + thread / 8;
  const char* at = static_cast<const char*>(work.in.data) + (inside ? first * work.in.stride + col * 2 : 0);
  const uint32_t place_of = to + static_cast<uint32_t>(thread / 8 * 128 + ((eighth ^ thread / 8 % 8) * 16));
#pragma unroll
  for (int i = 0; i < Tokens * 8 / kFillers; ++i) {
    constexpr int kRows = kFillers / 8;  // brought at a time
    const bool real = inside && first + i * kRows < work.in.rows;
    copy_16(place_of + static_cast<uint32_t>(i * kRows * 128), real ? at + i * kRows * work.in.stride : work.in.data,
            real ? 16 : 0);
  }
}

__device__ inline uint4 load_16(uint32_t shared) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(shared));
  return value;
}

// act(gate) * up: the second four warps hand their half over through shared memory, which nobody needs any more.
template <int Tokens>
__device__ void finish_gated(const ManyRows& work, const Task& task, const float (&sums)[Tokens / 2], float* room) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32 % 4, g = lane / 4,
            t = lane % 4;
  auto users_meet = [] { asm volatile("bar.sync 1, 256;" ::: "memory"); };
  users_meet();
  if (thread >= 128) {
#pragma unroll
    for (int i = 0; i < Tokens / 2; ++i) room[i * 128 + thread % 128] = sums[i];
  }
  users_meet();
  if (thread >= 128) return;
  const View out = {work.parts[0].out, work.parts[0].out_stride * 4, work.in.rows, work.parts[0].rows, work.out_form};
#pragma unroll
  for (int i = 0; i < Tokens / 2; ++i) {
    const int token = task.first_token + i / 4 * 8 + 2 * t + i % 2, row = (task.tile + warp) * 16 + g + i % 4 / 2 * 8;
    if (token >= work.in.rows || row >= work.parts[0].rows) continue;
    float gate = sums[i], up = room[i * 128 + thread];
    if (work.parts[0].bias != nullptr) gate += work.parts[0].bias[row];
    if (work.parts[1].bias != nullptr) up += work.parts[1].bias[row];
    write(out, token, row, activated(work.activation, gate) * up);
  }
}

// Bias, and the stream if the result is added to it.
__device__ inline void put(const ManyRows& work, const FewRows::Part& to, int64_t token, int row, float value) {
  if (to.bias != nullptr) value += to.bias[row];
  to.out[token * to.out_stride + row] = value;
  if (work.residual != nullptr) {
    float* also = work.residual + token * work.residual_stride + row;
    *also = *also + work.residual_scale * value;
  }
}

template <int Tokens>
__device__ void finish(const ManyRows& work, const Task& task, const float (&sums)[Tokens / 2]) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, g = lane / 4, t = lane % 4;
  const FewRows::Part& to = work.parts[task.part];
#pragma unroll
  for (int i = 0; i < Tokens / 2; ++i) {
    const int token = task.first_token + i / 4 * 8 + 2 * t + i % 2;
    const int row = (task.tile + thread / 32) * 16 + g + i % 4 / 2 * 8;
    if (token >= work.in.rows || row >= to.rows) continue;
    if (work.partials == nullptr) {
      put(work, to, token, row, sums[i]);
    } else {
      work.partials[(int64_t{task.first_slice} * work.in.rows + token) * work.partial_stride + to.partial_at + row] =
          sums[i];
    }
  }
}

// The ring. Of every stage one barrier is passed when the inputs are there and one when both halves are done with them;
// weights are each warp's own matter, with a barrier for each warp and stage.
template <int Tokens>
struct Ring {
  static constexpr int kStages = Sizes<Tokens>::kStages;
  uint32_t stages, barriers;
  int stage = 0;
  uint32_t round = 0;

  __device__ uint32_t at() const { return stages + static_cast<uint32_t>(stage * Sizes<Tokens>::kStageBytes); }
  __device__ uint32_t full() const { return barriers + static_cast<uint32_t>(stage) * 80; }
  __device__ uint32_t empty() const { return full() + 8; }
  __device__ uint32_t weights_full(int warp) const { return full() + 16 + static_cast<uint32_t>(warp) * 8; }
  __device__ void next() {
    if (++stage == kStages) stage = 0, round ^= 1;
  }
  __device__ void begin() const {
    for (int i = 0; i < kStages; ++i) {
      const uint32_t barrier = barriers + static_cast<uint32_t>(i) * 80;
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(kFillers));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(barrier + 8));
      for (uint32_t warp = 0; warp < 8; ++warp) barrier_begin(barrier + 16 + warp * 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
};

template <int Tokens>
__device__ void bring_inputs(const ManyRows& work, const Task& task, Ring<Tokens> ring) {
  wait_for_previous();
  for (Place place = Place::first(task, task.first_slice); place.slice < task.end_slice; place.next(task)) {
    if (place.begin >= place.end) continue;  // a slice without inputs
    barrier_wait(ring.empty(), ring.round ^ 1);
    fetch_inputs<Tokens>(work, task, place, ring.at() + kWeightBytes);
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(ring.full()) : "memory");
    ring.next();
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// Multiplies what the ring brings. Weights do not depend on the kernel in front: a ring full of them is asked for at
// once.
template <class T, int Tokens, bool Gated>
__device__ void multiply(const ManyRows& work, const Task& task, Ring<Tokens> ring, float (&sums)[Tokens / 2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const FewRows::Part& part = work.parts[Gated ? warp / 4 : task.part];
  const int tile = task.tile + (Gated ? warp % 4 : warp);
  const std::byte* row_tile = tile * 16 < part.rows ? part.weights + int64_t{tile} * task.k_tiles * 512 : nullptr;
  Place ahead = Place::first(task, task.first_slice);
  Ring<Tokens> early = ring;
  auto fetch = [&] {
    while (ahead.slice < task.end_slice && ahead.begin >= ahead.end) ahead.next(task);
    if (ahead.slice >= task.end_slice) return;
    if (lane == 0)
      fetch_weights(row_tile, task, ahead, early.at() + static_cast<uint32_t>(warp * kWarpBytes),
                    early.weights_full(warp));
    early.next();
    ahead.next(task);
  };
  for (int i = 0; i < Ring<Tokens>::kStages; ++i) fetch();
  float slice[Tokens / 2];
  for (int number = task.first_slice; number < task.end_slice; ++number) {
    const int tiles = slice_begin(task.k_tiles, number + 1) - slice_begin(task.k_tiles, number);
    const int chunks = (tiles + kChunkTiles - 1) / kChunkTiles;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      uint4 weights[kChunkTiles];
      barrier_wait(ring.weights_full(warp), ring.round);
#pragma unroll
      for (int k = 0; k < kChunkTiles; ++k)
        weights[k] = load_16(ring.at() + static_cast<uint32_t>(warp * kWarpBytes + (k * 32 + lane) * 16));
      barrier_wait(ring.full(), ring.round);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      const uint64_t inputs = inputs_at(ring.at() + kWeightBytes);
      products_begin();
#pragma unroll
      for (int k = 0; k < kChunkTiles; ++k)
        Product<T, Tokens>::run(slice, weights[k], inputs + static_cast<uint64_t>(k) * 2, chunk + k);
      products_end();
      __syncwarp();
      fetch();  // into the place just read, while the product is computed
      products_finished<0>();
      if (threadIdx.x % 128 == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(ring.empty()) : "memory");
      ring.next();
    }
    if (chunks == 0) continue;
#pragma unroll
    for (int i = 0; i < Tokens / 2; ++i) sums[i] += slice[i];
  }
}

template <class T, int Tokens, bool Gated>
__global__ void __launch_bounds__(kUsers + kFillers, 1) many_rows_kernel(ManyRows work) {
  extern __shared__ char raw[];
  __shared__ __align__(16) uint64_t barriers[10 * Sizes<Tokens>::kStages];
  let_next_start();
  const uint32_t start = (shared_address(raw) + 1023) & ~1023u;
  const Ring<Tokens> ring = {start, shared_address(barriers)};
  if (threadIdx.x == 0) ring.begin();
  const Task task = task_of<Tokens, Gated>(work);
  // Where a slice ends within a chunk, weights are read that never came: they must be numbers.
  const uint32_t ragged =
      task.k_tiles % (kSlices * kChunkTiles) != 0 ? Sizes<Tokens>::kStages * Sizes<Tokens>::kStageBytes : 0;
  for (uint32_t i = threadIdx.x * 4; i < ragged; i += (kUsers + kFillers) * 4)
    *reinterpret_cast<uint32_t*>(raw + (start - shared_address(raw)) + i) = 0;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x >= kUsers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    bring_inputs<Tokens>(work, task, ring);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    float sums[Tokens / 2] = {};
    multiply<T, Tokens, Gated>(work, task, ring, sums);
    wait_for_previous();
    if constexpr (Gated) {
      finish_gated<Tokens>(work, task, sums, reinterpret_cast<float*>(raw + (start - shared_address(raw))));
    } else {
      finish<Tokens>(work, task, sums);
    }
  }
}

// Adds slices: grid (outputs / 256, rows, parts).
__global__ void add_slices_kernel(ManyRows work) {
  let_next_start();
  wait_for_previous();
  const FewRows::Part& to = work.parts[blockIdx.z];
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int64_t token = blockIdx.y;
  if (row >= to.rows) return;
  const float* from = work.partials + token * work.partial_stride + to.partial_at + row;
  float value = 0;
#pragma unroll
  for (int i = 0; i < kSlices; ++i) value += from[i * work.in.rows * work.partial_stride];
  put(work, to, token, row, value);
}

// act(gate) * up of slices: the second part's outputs follow the first's.
__global__ void add_gated_slices_kernel(ManyRows work) {
  let_next_start();
  wait_for_previous();
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int64_t token = blockIdx.y;
  if (row >= work.parts[0].rows) return;
  float values[2];
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const float* from = work.partials + token * work.partial_stride + work.parts[part].partial_at + row;
    float value = 0;
#pragma unroll
    for (int i = 0; i < kSlices; ++i) value += from[i * work.in.rows * work.partial_stride];
    if (work.parts[part].bias != nullptr) value += work.parts[part].bias[row];
    values[part] = value;
  }
  const View out = {work.parts[0].out, work.parts[0].out_stride * 4, work.in.rows, work.parts[0].rows, work.out_form};
  write(out, token, row, activated(work.activation, values[0]) * values[1]);
}

template <class T, int Tokens, bool Gated>
void start(cudaStream_t stream, const ManyRows& work, dim3 grid) {
  static const bool prepared = prepare(many_rows_kernel<T, Tokens, Gated>, Sizes<Tokens>::kShared);
  static_cast<void>(prepared);
  launch(stream, many_rows_kernel<T, Tokens, Gated>, grid, kUsers + kFillers, Sizes<Tokens>::kShared, work);
}

template <class T, int Tokens>
void start_with(cudaStream_t stream, ManyRows work, int64_t room) {
  const unsigned across = static_cast<unsigned>((work.in.rows + Tokens - 1) / Tokens);
  unsigned down = 0;
  int64_t outputs = 0;
  for (int i = 0; i < work.count; ++i) {
    work.parts[i].partial_at = outputs;
    outputs += work.parts[i].rows;
    down += static_cast<unsigned>((work.parts[i].rows + 127) / 128);
  }
  if (work.gated) down = static_cast<unsigned>((work.parts[0].rows + 63) / 64);
  const bool split = across * down < 120 && kSlices * work.in.rows * outputs <= room;
  if (!split) {
    work.partials = nullptr;
    if (work.gated) return start<T, Tokens, true>(stream, work, dim3(across, down));
    return start<T, Tokens, false>(stream, work, dim3(across, down));
  }
  work.partial_stride = outputs;
  ManyRows plain = work;
  plain.gated = false;
  if (work.gated) {
    down = 0;
    for (int i = 0; i < work.count; ++i) down += static_cast<unsigned>((work.parts[i].rows + 127) / 128);
  }
  start<T, Tokens, false>(stream, plain, dim3(across, down, kSlices));
  unsigned widest = 0;
  for (int i = 0; i < work.count; ++i)
    widest = std::max(widest, static_cast<unsigned>((work.parts[i].rows + 255) / 256));
  if (work.gated) {
    launch(stream, add_gated_slices_kernel, dim3(widest, static_cast<unsigned>(work.in.rows)), 256, 0, work);
  } else {
    launch(stream, add_slices_kernel,
           dim3(widest, static_cast<unsigned>(work.in.rows), static_cast<unsigned>(work.count)), 256, 0, work);
  }
}

}  // namespace

void many_rows(cudaStream_t stream, const ManyRows& work, int64_t partial_room) {
  const bool few = work.in.rows <= 64;
  if (work.half) {
    return few ? start_with<__half, 64>(stream, work, partial_room)
               : start_with<__half, 128>(stream, work, partial_room);
  }
  return few ? start_with<__nv_bfloat16, 64>(stream, work, partial_room)
             : start_with<__nv_bfloat16, 128>(stream, work, partial_room);
}

}  // namespace millrace::cuda
