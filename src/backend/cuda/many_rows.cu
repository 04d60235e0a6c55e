// Products of any number of rows. A thread block takes 64 or 128 rows by so many outputs that all multiprocessors have
// something to do; one thread asks for inputs and weights, a ring of stages of 64 inputs ahead, and four warps for
// every 64 rows multiply. Where there are several tiles of rows, two thread blocks, a cluster, may share the weights
// they bring. Sums are the chain of packed.h.
#include "backend/cuda/many_rows_end.cuh"

#include <cmath>
#include <limits>

namespace millrace::cuda {
namespace {

// A kernel's threads: those that multiply, and those of the one that asks. Two sets of many sums need registers that
// the asking threads leave to the others, which goes by four warps.
template <int Groups, int Outputs, bool Cut>
inline constexpr bool kGivesRegisters = Cut&& Outputs > 128;
template <int Groups, int Outputs, bool Cut>
inline constexpr int kThreads = Groups * 128 + (kGivesRegisters<Groups, Outputs, Cut> ? 128 : 32);

// Where segments are added, how many totals a thread has in registers; the others, which do not fit beside the sums,
// are in shared memory.
template <int Outputs>
inline constexpr int kHeld = Outputs <= 192 ? Outputs / 2 : 64;
template <int Outputs>
inline constexpr int kRoomBytes = 128 * (Outputs / 2 - kHeld<Outputs>)*4;  // of four warps
template <int Groups, int Outputs, bool Cut, int Together>
using SizesOf = Sizes<Groups, Outputs, Together, Cut ? Groups * kRoomBytes<Outputs> : 0>;

// So many tiles of rows read weights at the same time, and the second cache need not keep them.
inline constexpr int kReadOnceTiles = 2;

// Tiles have whole heads of 64 and 128 numbers.
template <int Outputs>
inline constexpr bool kWholeHeads = Outputs % 128 == 0;

// The tiles of a thread block, one after the other. Those of a pair have the same numbers.
template <int Groups, int Outputs, bool Gated, int Together>
struct Way {
  const Products& work;
  const Tiles& tiles;
  int number = static_cast<int>(blockIdx.x) / Together;

  __device__ bool more() const { return number < (tiles.rows + Together - 1) / Together * tiles.outputs; }
  __device__ void next() { number += static_cast<int>(gridDim.x) / Together; }
  __device__ Tile tile() const {
    const int rank = Together > 1 ? cluster_rank() : 0;
    return tile_of<Groups, Outputs, Gated, Together>(work, tiles, number, rank);
  }
};

// The thread that asks. Its first weights do not wait for the kernel in front, unless it makes them. A tile beyond the
// last row has no inputs; its thread block still brings its share of the weights, and its sums are of whatever lies
// there, which nobody writes. Small tiles wait for this one thread: every instruction of its loop counts.
template <bool Gated, bool Once, class Size, class Tiled>
__device__ void bring(const Products& work, const Tiles& tiles, const Maps& maps, Ring<Size> ring, Tiled way) {
  Tile tile = way.tile();
  bool real = false, last = false;
  uint32_t bytes = 0;
  auto look = [&] {
    real = tile.first_row < work.in.rows;
    last = tile.first_row + Size::kRows > work.in.rows;
    const int rows = !real ? 0 : last ? tiles.last_rows : tiles.box_rows;
    bytes = static_cast<uint32_t>(rows * 128 + Size::kWeightBytes);
  };
  auto ask = [&](int chunk, const Ring<Size>& at) {
    barrier_expect(at.full(), bytes);
    if constexpr (Size::kTogether == 1) {
      ask_weights<Size, Gated, Once>(maps, tile, chunk, at);
    } else {
      ask_half_weights<Size, Gated>(maps, tile, chunk, at, cluster_rank());
    }
  };
  auto ask_inputs = [&](const CUtensorMap& map, int chunk) {
    if (Size::kTogether == 1 || real) copy_box(ring.at(), map, chunk * kChunkInputs, tile.first_row, ring.full());
  };
  look();
  int early = work.weights_just_made ? 0 : min(Size::kEarly, tiles.chunks);
  Ring<Size> start = ring;
  int chunk = 0;
  for (; chunk < early; ++chunk, start.next()) ask(chunk, start);
  wait_for_previous();
  asm volatile("fence.proxy.async;" ::: "memory");
  auto ask_rest = [&](const CUtensorMap& map) {
    for (chunk = 0; chunk < early; ++chunk, ring.next()) ask_inputs(map, chunk);
    for (; chunk < tiles.chunks; ++chunk, ring.next()) {
      barrier_wait(ring.free(), ring.round ^ 1);
      ask(chunk, ring);
      ask_inputs(map, chunk);
    }
  };
  for (;;) {
    if (last)
      ask_rest(maps.last_inputs);
    else
      ask_rest(maps.inputs);
    way.next();
    if (!way.more()) return;
    tile = way.tile();
    look();
    early = 0;
  }
}

// The same for each segment, and their total.
template <class T, class Size, int Sums>
__device__ void multiply_segments(Ring<Size>& ring, const Tiles& tiles, float (&total)[Sums]) {
  float sums[Sums];
#pragma unroll
  for (int i = 0; i < Sums; ++i) total[i] = 0;
#pragma unroll 1
  for (int first = 0; first < tiles.chunks; first += tiles.segment) {
    multiply<T, Size>(ring, min(tiles.segment, tiles.chunks - first), sums);
#pragma unroll
    for (int i = 0; i < Sums; ++i) total[i] += sums[i];
  }
}

// The same where totals have no room beside the sums. room: of a group of four warps, four totals of each thread after
// four; the first segment's sums are put there, the last one's meet them in registers.
template <class T, class Size, int Sums>
__device__ void multiply_wide_segments(Ring<Size>& ring, const Tiles& tiles, float4* room, float (&total)[Sums]) {
  constexpr int kHere = kHeld<Sums * 2>;
  float sums[Sums] = {};  // said so that nobody keeps those of the last tile
#pragma unroll
  for (int i = 0; i < kHere; ++i) total[i] = 0;
  auto fours = [room](int i) -> float4& { return room[(i - kHere) / 4 * 128 + threadIdx.x % 128]; };
#pragma unroll 1
  for (int first = 0; first < tiles.chunks; first += tiles.segment) {
    multiply<T, Size>(ring, min(tiles.segment, tiles.chunks - first), sums);
#pragma unroll
    for (int i = 0; i < kHere; ++i) total[i] += sums[i];
    if (first + tiles.segment >= tiles.chunks) break;
    if (first == 0) room_is_free();
#pragma unroll
    for (int i = kHere; i < Sums; i += 4) {
      float4 four = {};
      if (first > 0) four = fours(i);
      fours(i) = {four.x + sums[i], four.y + sums[i + 1], four.z + sums[i + 2], four.w + sums[i + 3]};
      if (i % 16 == 12) asm volatile("" ::: "memory");  // no more of them in registers at a time
    }
  }
#pragma unroll
  for (int i = kHere; i < Sums; i += 4) {
    const float4 four = fours(i);
    total[i] = four.x + sums[i], total[i + 1] = four.y + sums[i + 1];
    total[i + 2] = four.z + sums[i + 2], total[i + 3] = four.w + sums[i + 3];
  }
}

template <class T, int Groups, int Outputs, bool Gated, bool Cut, int Together>
__global__ void __launch_bounds__(kThreads<Groups, Outputs, Cut>, 1)
    many_rows_kernel(const __grid_constant__ Products work, const __grid_constant__ Maps maps, Tiles tiles) {
  using Size = SizesOf<Groups, Outputs, Cut, Together>;
  extern __shared__ char raw[];
  __shared__ __align__(16) uint64_t barriers[2 * Size::kStages];
  Ring<Size> ring = {held((shared_address(raw) + 1023) & ~1023u), held(shared_address(barriers))};
  begin<Groups>(ring);
  Way<Groups, Outputs, Gated, Together> way = {work, tiles};
  constexpr bool kWide = Cut && kHeld<Outputs> < Outputs / 2;
  const uint32_t room = ring.stages + Size::kStages * Size::kStageBytes + threadIdx.x / 128 * kRoomBytes<Outputs>;
  if (threadIdx.x < Groups * 128) {
    if constexpr (kGivesRegisters<Groups, Outputs, Cut>) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    wait_for_previous();
    for (; way.more(); way.next()) {
      float sums[Outputs / 2];
      if constexpr (Cut) {
        if constexpr (kWide) {
          multiply_wide_segments<T>(ring, tiles, reinterpret_cast<float4*>(raw + (room - shared_address(raw))), sums);
        } else {
          multiply_segments<T, Size>(ring, tiles, sums);
        }
      } else {
        multiply<T, Size>(ring, tiles.chunks, sums);
      }
      const Tile tile = way.tile();
      if constexpr (Gated) {
        finish_gated<Outputs>(work, tile, sums);
      } else if (kWholeHeads<Outputs> && work.heads.table != nullptr) {
        if constexpr (kWholeHeads<Outputs>) finish_heads<Outputs>(work, tile, sums);
      } else if (kWide && tiles.boxes) {
        if constexpr (kWide) add_boxes(work, maps, tile, room, sums);
      } else {
        finish<Outputs>(work, tile, sums);
      }
    }
    if (kWide && tiles.boxes && threadIdx.x % 128 == 0) sent_arrived();
  } else {
    if constexpr (kGivesRegisters<Groups, Outputs, Cut>) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == Groups * 128) {
      if (Together == 1 && tiles.rows <= kReadOnceTiles)
        bring<Gated, true>(work, tiles, maps, ring, way);
      else
        bring<Gated, false>(work, tiles, maps, ring, way);
    }
  }
  if constexpr (Size::kTogether > 1)
    cluster_sync();  // nobody leaves while the other may still say that a stage is free
}

// ---- host side

constexpr int kManyRows = 512;  // from which on wide tiles are best

// A kernel, how many of its clusters run at a time, and about how long it takes.
template <class T, int Groups, int Outputs, bool Gated, bool Cut, int Together>
struct Variant {
  using Size = SizesOf<Groups, Outputs, Cut, Together>;
  static constexpr auto kKernel = many_rows_kernel<T, Groups, Outputs, Gated, Cut, Together>;
  static constexpr int kThreadCount = kThreads<Groups, Outputs, Cut>;

  static void ready() {
    static const bool prepared = prepare(kKernel, Size::kShared);
    static_cast<void>(prepared);
  }
  // None: the GPU has no room for clusters.
  static int at_once() {
    if constexpr (Together == 1) return multiprocessors();
    static const int found = [] {
      ready();
      const Launch how(nullptr, Together, kThreadCount, Size::kShared, Together, false);
      int most = 0;
      if (cudaOccupancyMaxActiveClusters(&most, kKernel, &how.config) == cudaSuccess) return most;
      cudaGetLastError();
      return 0;
    }();
    return found;
  }
  static int tiles_down(const Products& work) { return (work.in.rows + Size::kRows - 1) / Size::kRows; }
  static int clusters(const Products& work) {
    return (tiles_down(work) + Together - 1) / Together * tiles_across(work, Outputs);
  }
  static int box_rows(const Products& work) { return std::min(Size::kRows, (work.in.rows + 7) / 8 * 8); }

  // In nanoseconds: what binds it (the second cache, a multiprocessor's way to it, memory, the matrix units; bytes and
  // operations a nanosecond as measured), adding segments, and the end of each round.
  static double cost(const Products& work) {
    constexpr bool kWideCut = Cut && Outputs > 192;
    // As measured: with fewer rows both are slower, and the longer ends of wide tiles pay where inputs are many.
    const bool many = work.in.rows >= kManyRows;
    if ((Together > 1 && !many) || (kWideCut && (!many || work.cols < 4096)) || at_once() == 0)
      return std::numeric_limits<double>::infinity();
    const double rounds = std::ceil(static_cast<double>(clusters(work)) / at_once());
    const double arrives = 2.0 * work.cols * (box_rows(work) + Outputs);  // at a thread block
    const double asked = 2.0 * work.cols * (box_rows(work) + Outputs / Together);
    double weights = 0;
    for (int i = 0; i < work.count; ++i) weights += 2.0 * work.cols * work.parts[i].rows;
    const double cache = clusters(work) * Together * asked / 9000, way = rounds * arrives / 75;
    const double memory = weights / 4200;
    const double multiply = rounds * 2.0 * Size::kRows * Outputs * work.cols / 6550;
    const double add = Cut ? 16.0 * work.segments * Outputs : 0;
    return std::max({cache, way, memory, multiply}) + rounds * (1000 + add + 20.0 * Outputs / (Gated ? 2 : 1));
  }

  static cudaError_t start(cudaStream_t stream, const Products& work) {
    ready();
    if (encoder() == nullptr) return cudaErrorNotSupported;
    Tiles tiles = {.rows = tiles_down(work),
                   .outputs = tiles_across(work, Outputs),
                   .chunks = static_cast<int>(chunks_of(work.cols)),
                   .segment = segment_chunks(work.cols, work.segments)};
    Maps maps;
    bool fine = map_inputs(maps, tiles, work, Size::kRows);
    for (int i = 0; i < work.count; ++i)
      fine = fine && map_weights(maps.weights[i], work.parts[i], tiles.chunks, Outputs / (Gated ? 2 : Together));
    if (!fine) return cudaErrorInvalidValue;
    tiles.boxes = work.residual != nullptr && map_stream(maps.stream, work);
    const int grid = std::min(at_once(), clusters(work)) * Together;
    const Launch how(stream, static_cast<unsigned>(grid), kThreadCount, Size::kShared, Together, kernels_wait());
    return cudaLaunchKernelEx(&how.config, kKernel, work, maps, tiles);
  }
};

// The first of the variants that costs least.
template <class First, class... Others>
cudaError_t start_best(cudaStream_t stream, const Products& work) {
  if constexpr (sizeof...(Others) == 0) {
    return First::start(stream, work);
  } else {
    const double here = First::cost(work);
    if (((here <= Others::cost(work)) && ...)) return First::start(stream, work);
    return start_best<Others...>(stream, work);
  }
}

// So many outputs, and thread blocks that share weights.
template <int Outputs, int Together = 1>
struct Width {
  template <class T, int Groups, bool Gated, bool Cut>
  using Of = Variant<T, Groups, Outputs, Gated, Cut, Together>;
};
template <class T, int Groups, bool Gated, bool Cut, class... Widths>
cudaError_t start_width(cudaStream_t stream, const Products& work) {
  return start_best<typename Widths::template Of<T, Groups, Gated, Cut>...>(stream, work);
}

template <int Outputs>
using Pair = Width<Outputs, 2>;

// Queries, keys and values that are to be finished need tiles of whole heads.
template <class T, bool Cut>
cudaError_t start_heads(cudaStream_t stream, const Products& work) {
  return start_width<T, 2, false, Cut, Pair<256>, Width<256>, Pair<128>, Width<128>>(stream, work);
}

template <class T>
cudaError_t start_cut(cudaStream_t stream, const Products& work) {
  if (work.in.rows <= 64)
    return work.gated ? start_width<T, 1, true, true, Width<128>, Width<64>>(stream, work)
                      : start_width<T, 1, false, true, Width<128>, Width<64>, Width<48>, Width<32>>(stream, work);
  if (work.gated) return start_width<T, 2, true, true, Width<128>>(stream, work);
  return start_width<T, 2, false, true, Pair<256>, Width<256>, Pair<192>, Width<192>, Pair<128>, Width<128>, Width<96>,
                     Width<64>, Width<32>>(stream, work);
}

template <class T>
cudaError_t start_whole(cudaStream_t stream, const Products& work) {
  if (work.in.rows <= 64)
    return work.gated
               ? start_width<T, 1, true, false, Width<224>, Width<128>, Width<64>>(stream, work)
               : start_width<T, 1, false, false, Width<256>, Width<128>, Width<64>, Width<48>, Width<32>>(stream, work);
  if (work.gated) return start_width<T, 2, true, false, Pair<256>, Width<256>, Width<224>, Width<128>>(stream, work);
  return start_width<T, 2, false, false, Pair<256>, Width<256>, Pair<128>, Width<128>, Width<64>, Width<32>>(stream,
                                                                                                             work);
}

template <class T>
cudaError_t start(cudaStream_t stream, const Products& work) {
  if (work.heads.table != nullptr)
    return work.segments > 1 ? start_heads<T, true>(stream, work) : start_heads<T, false>(stream, work);
  return work.segments > 1 ? start_cut<T>(stream, work) : start_whole<T>(stream, work);
}

}  // namespace

bool many_rows_finish(int32_t rows, const Rope& rope, const KvView& kv) {
  const bool heads = (kv.k_dim == 64 || kv.k_dim == 128) && kv.v_dim == kv.k_dim && rope.dims == kv.k_dim;
  return heads && rows >= kManyRows && kv.form.plain();
}

cudaError_t many_rows(cudaStream_t stream, const Products& work) {
  if (spread_rows(stream, work)) return cudaSuccess;
  return work.type == DType::f16 ? start<__half>(stream, work) : start<__nv_bfloat16>(stream, work);
}

cudaError_t load_many_rows() { return load_kernels(); }

}  // namespace millrace::cuda
