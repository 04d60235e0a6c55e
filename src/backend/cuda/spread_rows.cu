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
  const bool last = tile.first_row + Size::kRows > work.in.rows;
  const uint32_t bytes = static_cast<uint32_t>((last ? tiles.last_rows : tiles.box_rows) * 128 + Size::kWeightBytes);
  const int early = work.weights_just_made ? 0 : min(Size::kStages, count);
  Ring<Size> start = ring;
  for (int chunk = 0; chunk < early; ++chunk, start.next()) {
    barrier_expect(start.full(), bytes);
    ask_weights<Size, false>(maps, tile, first + chunk, start);
  }
  wait_for_previous();
  asm volatile("fence.proxy.async;" ::: "memory");
  auto ask_rest = [&](const CUtensorMap& map) {
    for (int chunk = 0; chunk < count; ++chunk, ring.next()) {
      if (chunk >= early) {
        barrier_wait(ring.free(), ring.round ^ 1);
        barrier_expect(ring.full(), bytes);
        ask_weights<Size, false>(maps, tile, first + chunk, ring);
      }
      copy_box(ring.at(), map, (first + chunk) * kChunkInputs, tile.first_row, ring.full());
    }
  };
  if (last)
    ask_rest(maps.last_inputs);
  else
    ask_rest(maps.inputs);
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

// This thread group's share of a tile's outputs, four of them at a time and thread.
template <int Groups, int Outputs>
struct Share {
  static constexpr int kThreads = Groups * 128;
  static constexpr int kMost = Outputs / 32;  // with four segments; with more, those behind the last have nothing
  static constexpr int kBatch = std::min(4, kMost);  // asked for before the first is there
  static_assert(kMost % kBatch == 0);
  const Products& work;
  const Products::Part& part;
  const Tile& tile;
  int rank;
  float4 old[kMost] = {};  // what the stream was before

  // Where number j of this thread lies: its row, and its first output of the tile. False: there is none.
  __device__ bool find(int j, int& row, int& col) const {
    const int share = Outputs / work.segments, i = static_cast<int>(threadIdx.x) + j * kThreads;
    row = i / (share / 4), col = rank * share + i % (share / 4) * 4;
    return row < min(64 * Groups, work.in.rows - tile.first_row) && tile.first_output + col < part.rows;
  }
  __device__ float* place(int row, int col) const {
    const int64_t token = tile.first_row + row;
    return (work.residual != nullptr ? work.residual + token * work.residual_stride
                                     : part.out + token * part.out_stride) +
           tile.first_output + col;
  }
  // Four can be read and written at once.
  __device__ bool whole(const float* at, int col) const {
    return tile.first_output + col + 4 <= part.rows && reinterpret_cast<uintptr_t>(at) % 16 == 0;
  }
  // Long before it is needed.
  __device__ __forceinline__ void read_old() {
    if (work.residual == nullptr) return;
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      int row, col;
      if (!find(j, row, col)) continue;
      const float* at = place(row, col);
      if (whole(at, col)) old[j] = *reinterpret_cast<const float4*>(at);
    }
  }
  __device__ void put(int row, int col, const float4& before, const float4& sums) const {
    const int output = tile.first_output + col;
    float* to = place(row, col);
    const bool at_once = whole(to, col);
    float values[4] = {sums.x, sums.y, sums.z, sums.w};
    const float stream[4] = {before.x, before.y, before.z, before.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (output + i >= part.rows) break;
      if (part.bias != nullptr) values[i] += part.bias[output + i];
      if (work.residual != nullptr)
        values[i] = add_to_stream(at_once ? stream[i] : to[i], work.residual_scale * values[i]);
      if (!at_once) to[i] = values[i];
    }
    if (at_once) *reinterpret_cast<float4*>(to) = {values[0], values[1], values[2], values[3]};
  }
  // All segments' sums are in the rooms of their thread groups.
  __device__ __forceinline__ void add_up(uint32_t room) const {
#pragma unroll
    for (int first = 0; first < kMost; first += kBatch) {
      float4 total[kBatch] = {};
      uint32_t from[kBatch];
      int row[kBatch], col[kBatch];
      bool real[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        real[j] = find(first + j, row[j], col[j]);
        from[j] = room + (real[j] ? static_cast<uint32_t>((row[j] * kPitch<Outputs> + col[j]) * 4) : 0);
      }
#pragma unroll 4
      for (int segment = 0; segment < work.segments; ++segment) {
        float4 four[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j)
          if (real[j]) four[j] = load_of(from[j], segment);
#pragma unroll
        for (int j = 0; j < kBatch; ++j)
          if (real[j])
            total[j] = {total[j].x + four[j].x, total[j].y + four[j].y, total[j].z + four[j].z, total[j].w + four[j].w};
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j)
        if (real[j]) put(row[j], col[j], old[first + j], total[j]);
    }
  }
};

// Many sums need registers that the asking threads leave to the others, which goes by four warps.
template <int Groups, int Outputs>
inline constexpr bool kGivesRegisters = Groups > 1 && Outputs > 128;
template <int Groups, int Outputs>
inline constexpr int kThreads = Groups * 128 + (kGivesRegisters<Groups, Outputs> ? 128 : 32);

template <class T, int Groups, int Outputs>
__global__ void __launch_bounds__(kThreads<Groups, Outputs>, 1)
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
    if constexpr (kGivesRegisters<Groups, Outputs>) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    wait_for_previous();
    Share<Groups, Outputs> share = {work, work.parts[tile.part], tile, rank};
    share.read_old();
    float sums[Outputs / 2];
    multiply<T, Size>(ring, count, sums);
    asm volatile("barrier.sync 1, %0;" ::"n"(Groups * 128) : "memory");  // all have read the last stage
    leave<Outputs>(room, sums);
    cluster_sync();
    share.add_up(room);
  } else {
    if constexpr (kGivesRegisters<Groups, Outputs>) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == Groups * 128) bring<Size>(work, tiles, maps, tile, first, count, ring);
    __syncwarp();
    cluster_sync();
  }
  cluster_sync();  // nobody leaves while its sums may be read
}

template <class T, int Groups, int Outputs>
bool start(cudaStream_t stream, const Products& work) {
  using Size = Sizes<Groups, Outputs>;
  static const bool prepared = prepare(spread_kernel<T, Groups, Outputs>, Size::kShared);
  static_cast<void>(prepared);
  Tiles tiles = {.rows = (work.in.rows + Size::kRows - 1) / Size::kRows,
                 .outputs = tiles_across(work, Outputs),
                 .chunks = static_cast<int>(chunks_of(work.cols)),
                 .segment = segment_chunks(work.cols, work.segments)};
  const Launch how(stream, count(int64_t{tiles.rows} * tiles.outputs * work.segments), kThreads<Groups, Outputs>,
                   Size::kShared, work.segments, kernels_wait());
  static int together[9] = {};  // clusters of so many that run at a time
  int& most = together[work.segments];
  if (most == 0 && cudaOccupancyMaxActiveClusters(&most, spread_kernel<T, Groups, Outputs>, &how.config) != cudaSuccess)
    most = -1;
  if (tiles.rows * tiles.outputs > most) return false;
  Maps maps;
  bool fine = encoder() != nullptr && map_inputs(maps, tiles, work, Size::kRows);
  for (int i = 0; i < work.count; ++i)
    fine = fine && map_weights(maps.weights[i], work.parts[i], tiles.chunks, Outputs);
  if (!fine) return false;
  cudaLaunchKernelEx(&how.config, spread_kernel<T, Groups, Outputs>, work, maps, tiles);
  return true;
}

// With so many outputs of a tile at most.
template <class T, int Groups>
bool start_narrowest(cudaStream_t stream, const Products& work, int most) {
  if (start<T, Groups, 64>(stream, work)) return true;
  if (most >= 128 && start<T, Groups, 128>(stream, work)) return true;
  return most >= 256 && start<T, Groups, 256>(stream, work);
}

// As measured: with inputs of a middling length meeting twice costs what is gained, and wide tiles of more rows are no
// quicker than without.
int widest(const Products& work) {
  if (work.in.rows <= 128) return work.cols >= 8192 ? 256 : work.cols <= 2048 ? 64 : 0;
  return work.in.rows <= 256 && work.cols >= 8192 ? 128 : 0;
}

template <class T>
bool start_with(cudaStream_t stream, const Products& work, int most) {
  return work.in.rows <= 64 ? start_narrowest<T, 1>(stream, work, most) : start_narrowest<T, 2>(stream, work, most);
}

}  // namespace

bool spread_rows(cudaStream_t stream, const Products& work) {
  const int most = widest(work);
  if (work.segments < 4 || work.gated || most == 0) return false;
  return work.type == DType::f16 ? start_with<__half>(stream, work, most)
                                 : start_with<__nv_bfloat16>(stream, work, most);
}

}  // namespace millrace::cuda
