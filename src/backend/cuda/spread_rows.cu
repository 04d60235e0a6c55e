// Products of so few rows and outputs that there are fewer tiles than multiprocessors, with inputs in segments
// (packed.h): the segments of a tile go to the thread blocks of a cluster. Each multiplies its own, one or more, leaves
// their sums in its shared memory, and adds those of all segments, in order, for its share of the outputs. Tiles are
// wider this way, and a multiprocessor has less to read: bringing inputs and weights to it is what binds 16 to 256
// rows.
#include <limits>

#include "backend/cuda/many_rows.cuh"

namespace millrace::cuda {
namespace {

// Shared memory of the cluster's thread block number `rank`.
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

// The thread that asks for a thread block's segments. Its first weights do not wait for the kernel in front, unless it
// makes them.
template <class Size>
__device__ void bring(const Products& work, const Tiles& tiles, const Maps& maps, const Tile& tile, int first,
                      int count, Ring<Size> ring) {
  const bool last = tile.first_row + Size::kRows > work.in.rows;
  const uint32_t bytes = static_cast<uint32_t>((last ? tiles.last_rows : tiles.box_rows) * 128 + Size::kWeightBytes);
  const int early = work.weights_just_made ? 0 : min(Size::kEarly, count);
  Ring<Size> start = ring;
  for (int chunk = 0; chunk < early; ++chunk, start.next()) {
    barrier_expect(start.full(), bytes);
    ask_weights<Size, false, true>(maps, tile, first + chunk, start);
  }
  wait_for_previous();
  asm volatile("fence.proxy.async;" ::: "memory");
  const CUtensorMap* inputs = last ? &maps.last_inputs : &maps.inputs;
  for (int chunk = 0; chunk < count; ++chunk, ring.next()) {
    if (chunk >= early) {
      barrier_wait(ring.free(), ring.round ^ 1);
      barrier_expect(ring.full(), bytes);
      ask_weights<Size, false, true>(maps, tile, first + chunk, ring);
    }
    copy_box(ring.at(), *inputs, (first + chunk) * kChunkInputs, tile.first_row, ring.full());
  }
}

// Rows of sums in shared memory: so many floats apart that neither writing nor reading waits for banks.
template <int Outputs>
inline constexpr int kPitch = Outputs + 8;
template <int Groups, int Outputs>
inline constexpr int kSetBytes = 64 * Groups* kPitch<Outputs> * 4;  // of a segment's

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
__device__ inline void put(const Products& work, const Products::Product& part, float* to, int output, float4 old,
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

// This thread block's share of the outputs: four at a time, several times that asked for before the first is there.
template <int Groups, int Outputs, int Each>
__device__ void add_up(const Products& work, const Tile& tile, int rank, uint32_t room) {
  constexpr int kThreads = Groups * 128, kBatch = 4;
  const Products::Product& part = work.parts[tile.part];
  const int segments = work.segments, share = Outputs * Each / segments, fours = share / 4,
            rows = min(64 * Groups, work.in.rows - tile.first_row);
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
        const float4 four = load_of(from[j] + segment % Each * kSetBytes<Groups, Outputs>, segment / Each);
        total[j] = {total[j].x + four.x, total[j].y + four.y, total[j].z + four.z, total[j].w + four.w};
      }
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j)
      if (output[j] < part.rows) put(work, part, to[j], output[j], old[j], total[j], whole);
  }
}

// Each: segments of a thread block.
template <class T, int Groups, int Outputs, int Each>
__global__ void __launch_bounds__(Groups * 128 + 32, 1)
    spread_kernel(const __grid_constant__ Products work, const __grid_constant__ Maps maps, Tiles tiles) {
  using Size = Sizes<Groups, Outputs>;
  static_assert(Each * kSetBytes<Groups, Outputs> <= Size::kStages * Size::kStageBytes);
  extern __shared__ char raw[];
  __shared__ __align__(16) uint64_t barriers[2 * Size::kStages];
  Ring<Size> ring = {held((shared_address(raw) + 1023) & ~1023u), held(shared_address(barriers))};
  begin<Groups>(ring);
  const int rank = cluster_rank(), together = work.segments / Each;
  const Tile tile = tile_of<Groups, Outputs, false>(work, tiles, static_cast<int>(blockIdx.x) / together);
  const int first = rank * Each * tiles.segment;
  const uint32_t room = ring.stages;
  if (threadIdx.x < Groups * 128) {
    wait_for_previous();
    float sums[Each][Outputs / 2];
#pragma unroll
    for (int i = 0; i < Each; ++i)
      multiply<T, Size>(ring, min(tiles.segment, tiles.chunks - first - i * tiles.segment), sums[i]);
    asm volatile("barrier.sync 1, %0;" ::"n"(Groups * 128) : "memory");  // all have read the last stage
#pragma unroll
    for (int i = 0; i < Each; ++i) leave<Outputs>(room + i * kSetBytes<Groups, Outputs>, sums[i]);
  } else if (threadIdx.x == Groups * 128) {
    bring<Size>(work, tiles, maps, tile, first, min(Each * tiles.segment, tiles.chunks - first), ring);
  }
  cluster_sync();
  if (threadIdx.x < Groups * 128) add_up<Groups, Outputs, Each>(work, tile, rank, room);
  cluster_sync();  // nobody leaves while its sums may be read
}

template <class T, int Groups, int Outputs, int Each>
struct Variant {
  using Size = Sizes<Groups, Outputs>;
  static constexpr auto kKernel = spread_kernel<T, Groups, Outputs, Each>;

  static Tiles tiles(const Products& work) {
    return {.rows = (work.in.rows + Size::kRows - 1) / Size::kRows,
            .outputs = tiles_across(work, Outputs),
            .chunks = static_cast<int>(chunks_of(work.cols)),
            .segment = segment_chunks(work.cols, work.segments)};
  }
  static Launch launch(cudaStream_t stream, const Products& work) {
    static const bool prepared = prepare(kKernel, Size::kShared);
    static_cast<void>(prepared);
    const Tiles cut = tiles(work);
    const int together = work.segments / Each;
    return Launch(stream, count(int64_t{cut.rows} * cut.outputs * together), Groups * 128 + 32, Size::kShared, together,
                  kernels_wait());
  }
  // What arrives at a thread block, if all can run at a time.
  static double cost(const Products& work) {
    const Tiles cut = tiles(work);
    const int together = work.segments / Each;
    if (work.segments % Each != 0 || together < 2) return std::numeric_limits<double>::infinity();
    static int most[9] = {};  // clusters of so many that run at a time
    if (most[together] == 0) {
      const Launch how = launch(nullptr, work);
      if (cudaOccupancyMaxActiveClusters(&most[together], kKernel, &how.config) != cudaSuccess) {
        cudaGetLastError();  // no failure of the step
        most[together] = -1;
      }
    }
    if (cut.rows * cut.outputs > most[together]) return std::numeric_limits<double>::infinity();
    return static_cast<double>(Each) * (std::min(Size::kRows, work.in.rows) + Outputs);
  }
  static bool start(cudaStream_t stream, const Products& work) {
    Tiles cut = tiles(work);
    Maps maps;
    bool fine = encoder() != nullptr && map_inputs(maps, cut, work, Size::kRows);
    for (int i = 0; i < work.count; ++i)
      fine = fine && map_weights(maps.weights[i], work.parts[i], cut.chunks, Outputs);
    if (!fine) return false;
    const Launch how = launch(stream, work);
    return cudaLaunchKernelEx(&how.config, kKernel, work, maps, cut) == cudaSuccess;
  }
};

// The first of the variants that costs least; false: none can be had.
template <class First, class... Others>
bool start_best(cudaStream_t stream, const Products& work) {
  const double here = First::cost(work);
  if (((here <= Others::cost(work)) && ...))
    return here < std::numeric_limits<double>::infinity() && First::start(stream, work);
  if constexpr (sizeof...(Others) > 0) return start_best<Others...>(stream, work);
  return false;
}

template <class T, int Groups>
bool start_with(cudaStream_t stream, const Products& work) {
  return start_best<Variant<T, Groups, 64, 2>, Variant<T, Groups, 64, 4>, Variant<T, Groups, 128, 2>,
                    Variant<T, Groups, 128, 1>, Variant<T, Groups, 256, 1>>(stream, work);
}

}  // namespace

// Where inputs are few, meeting twice costs more than is gained.
bool spread_rows(cudaStream_t stream, const Products& work) {
  const bool gains = work.cols >= 8192 || (work.cols >= 4096 && work.count == 1 && work.in.rows <= 64);
  if (work.segments == 1 || work.gated || work.in.rows > 256 || !gains) return false;
  if (work.type == DType::f16)
    return work.in.rows <= 64 ? start_with<__half, 1>(stream, work) : start_with<__half, 2>(stream, work);
  return work.in.rows <= 64 ? start_with<__nv_bfloat16, 1>(stream, work) : start_with<__nv_bfloat16, 2>(stream, work);
}

cudaError_t load_spread_rows() { return load_kernels(); }

}  // namespace millrace::cuda
