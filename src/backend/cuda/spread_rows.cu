// Products of so few rows and outputs that there are fewer tiles than multiprocessors, with inputs in segments
// (packed.h): the segments of a tile go to the thread groups of a cluster. Each multiplies its own, leaves the sums in
// its shared memory, and adds those of all segments, in order, for its share of the outputs. Tiles are wider this way,
// and a multiprocessor has less to read: bringing inputs and weights to it is what binds 16 to 128 rows.
#include "backend/cuda/many_rows.cuh"

namespace millrace::cuda {
namespace {

// Shared memory of the cluster's thread group number `rank`.
__device__ inline float4 load_of(uint32_t shared, int rank) {
  float4 four;
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [there];\n}"
      : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
      : "r"(shared), "r"(rank)
      : "memory");
  return four;
}

// The thread that asks for a segment. Weights of the first ring full do not wait for the kernel in front, unless it
// makes them.
template <class Size>
__device__ void bring(const Products& work, const Tiles& tiles, const Maps& maps, const Tile& tile, int first,
                      int count, Ring<Size> ring) {
  const uint32_t bytes = static_cast<uint32_t>(tiles.box_rows * 128 + Size::kWeightBytes);
  const int early = work.weights_just_made ? 0 : min(Size::kStages, count);
  Ring<Size> start = ring;
  for (int chunk = 0; chunk < early; ++chunk, start.next()) {
    barrier_expect(start.full(), bytes);
    ask_weights<Size, false>(maps, tile, first + chunk, start);
  }
  wait_for_previous();
  asm volatile("fence.proxy.async;" ::: "memory");
  for (int chunk = 0; chunk < count; ++chunk, ring.next()) {
    if (chunk >= early) {
      barrier_wait(ring.free(), ring.round ^ 1);
      barrier_expect(ring.full(), bytes);
      ask_weights<Size, false>(maps, tile, first + chunk, ring);
    }
    copy_box(ring.at(), maps.inputs, (first + chunk) * kChunkInputs, tile.first_row, ring.full());
  }
}

// Rows of sums in shared memory: so many floats apart that neither writing nor reading waits for banks.
template <int Outputs>
inline constexpr int kPitch = Outputs + 8;

template <int Outputs>
__device__ void leave(uint32_t room, const float (&sums)[Outputs / 2]) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = thread / 32 * 16 + lane / 4 + 8 * i;
    const uint32_t to = room + static_cast<uint32_t>((row * kPitch<Outputs> + lane % 4 * 2) * 4);
#pragma unroll
    for (int j = 0; j < Outputs / 8; ++j)
      asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(to + static_cast<uint32_t>(j * 32)),
                   "f"(sums[4 * j + 2 * i]), "f"(sums[4 * j + 2 * i + 1])
                   : "memory");
  }
}

// Four neighbouring results; `whole`: they can be written at once.
__device__ inline void put(const Products& work, const Products::Part& part, float* to, int output, float4 old,
                           float4 sums, bool whole) {
  float values[4] = {sums.x, sums.y, sums.z, sums.w};
  const float before[4] = {old.x, old.y, old.z, old.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (output + i >= part.rows) break;
    if (part.bias != nullptr) values[i] += part.bias[output + i];
    if (work.residual != nullptr) values[i] = (whole ? before[i] : to[i]) + work.residual_scale * values[i];
    if (!whole) to[i] = values[i];
  }
  if (whole) *reinterpret_cast<float4*>(to) = {values[0], values[1], values[2], values[3]};
}

// This thread group's share of the outputs: four at a time, several times that asked for before the first is there.
template <int Groups, int Outputs>
__device__ void add_up(const Products& work, const Tile& tile, int rank, int segments, uint32_t room) {
  constexpr int kThreads = Groups * 128, kBatch = 4;
  const Products::Part& part = work.parts[tile.part];
  const int share = Outputs / segments, fours = share / 4, rows = min(64 * Groups, work.in.rows - tile.first_row);
  float* base = work.residual != nullptr ? work.residual : part.out;
  const int64_t stride = work.residual != nullptr ? work.residual_stride : part.out_stride;
  const bool whole = part.rows % 4 == 0 && stride % 4 == 0 && reinterpret_cast<uintptr_t>(base) % 16 == 0;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x); first < rows * fours; first += kBatch * kThreads) {
    float* to[kBatch];
    uint32_t from[kBatch];
    int output[kBatch];
    float4 old[kBatch] = {}, total[kBatch] = {};
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int i = first + j * kThreads, row = i / fours, col = rank * share + i % fours * 4;
      output[j] = i < rows * fours ? tile.first_output + col : part.rows;
      if (output[j] >= part.rows) continue;
      from[j] = room + static_cast<uint32_t>((row * kPitch<Outputs> + col) * 4);
      to[j] = base + (tile.first_row + row) * stride + output[j];
      if (whole && work.residual != nullptr) old[j] = *reinterpret_cast<const float4*>(to[j]);
    }
#pragma unroll 4
    for (int segment = 0; segment < segments; ++segment) {
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        if (output[j] >= part.rows) continue;
        const float4 four = load_of(from[j], segment);
        total[j] = {total[j].x + four.x, total[j].y + four.y, total[j].z + four.z, total[j].w + four.w};
      }
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j)
      if (output[j] < part.rows) put(work, part, to[j], output[j], old[j], total[j], whole);
  }
}

template <class T, int Groups, int Outputs>
__global__ void __launch_bounds__(Groups * 128 + 32, 1)
    spread_kernel(const __grid_constant__ Products work, const __grid_constant__ Maps maps, Tiles tiles) {
  using Size = Sizes<Groups, Outputs>;
  static_assert(64 * Groups * kPitch<Outputs> * 4 <= Size::kStages * Size::kStageBytes);
  extern __shared__ char raw[];
  __shared__ __align__(16) uint64_t barriers[2 * Size::kStages];
  Ring<Size> ring = {(shared_address(raw) + 1023) & ~1023u, shared_address(barriers)};
  begin<Groups>(ring);
  const int rank = cluster_rank(), segments = work.segments;
  const Tile tile = tile_of<Groups, Outputs, false>(work, tiles, static_cast<int>(blockIdx.x) / segments);
  const int first = rank * tiles.segment, count = min(tiles.segment, tiles.chunks - first);
  const uint32_t room = ring.stages;
  if (threadIdx.x < Groups * 128) {
    wait_for_previous();
    float sums[Outputs / 2];
    multiply<T, Size>(ring, count, sums);
    asm volatile("barrier.sync 1, %0;" ::"n"(Groups * 128) : "memory");  // all have read the last stage
    leave<Outputs>(room, sums);
  } else if (threadIdx.x == Groups * 128) {
    bring<Size>(work, tiles, maps, tile, first, count, ring);
  }
  cluster_sync();
  if (threadIdx.x < Groups * 128) add_up<Groups, Outputs>(work, tile, rank, segments, room);
  cluster_sync();  // nobody leaves while its sums may be read
}

template <class T, int Groups, int Outputs>
bool start(cudaStream_t stream, const Products& work) {
  using Size = Sizes<Groups, Outputs>;
  static const bool prepared = prepare(spread_kernel<T, Groups, Outputs>, Size::kShared);
  static_cast<void>(prepared);
  const Tiles tiles = {.rows = 1,
                       .outputs = tiles_across(work, Outputs),
                       .chunks = static_cast<int>(chunks_of(work.cols)),
                       .segment = segment_chunks(work.cols, work.segments),
                       .box_rows = std::min(Size::kRows, (work.in.rows + 7) / 8 * 8)};
  const Launch how(stream, count(int64_t{tiles.outputs} * work.segments), Groups * 128 + 32, Size::kShared,
                   work.segments, kernels_wait());
  static int together[9] = {};  // clusters of so many that run at a time
  int& most = together[work.segments];
  if (most == 0 && cudaOccupancyMaxActiveClusters(&most, spread_kernel<T, Groups, Outputs>, &how.config) != cudaSuccess)
    most = -1;
  if (tiles.outputs > most) return false;
  Maps maps;
  View in = work.in;
  in.cols = work.cols;
  bool fine = encoder() != nullptr && map_inputs(maps.inputs, in, tiles.box_rows);
  for (int i = 0; i < work.count; ++i)
    fine = fine && map_weights(maps.weights[i], work.parts[i], tiles.chunks, Outputs);
  if (!fine) return false;
  cudaLaunchKernelEx(&how.config, spread_kernel<T, Groups, Outputs>, work, maps, tiles);
  return true;
}

template <class T, int Groups>
bool start_narrowest(cudaStream_t stream, const Products& work) {
  return start<T, Groups, 64>(stream, work) || start<T, Groups, 128>(stream, work) ||
         start<T, Groups, 256>(stream, work);
}

template <class T>
bool start_with(cudaStream_t stream, const Products& work) {
  return work.in.rows <= 64 ? start_narrowest<T, 1>(stream, work) : start_narrowest<T, 2>(stream, work);
}

}  // namespace

// Where inputs are few, meeting twice costs more than is gained.
bool spread_rows(cudaStream_t stream, const Products& work) {
  if (work.segments == 1 || work.gated || work.in.rows > 128 || work.cols < 8192) return false;
  return work.type == DType::f16 ? start_with<__half>(stream, work) : start_with<__nv_bfloat16>(stream, work);
}

}  // namespace millrace::cuda
