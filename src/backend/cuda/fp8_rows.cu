// Products of FP8 weights with inputs that are rounded to FP8, and of INT8 with INT8, for few rows: four warps have a
// segment of the inputs each and bring their own weights (fp8_rows.cuh).
#include "backend/cuda/fp8_rows.cuh"

namespace millrace::cuda {
namespace {

template <int Rows, int Sides, int Segments>
struct Few {
  static constexpr int kStageBytes = Sides * kTileBytes + Rows * kFp8Block;
  static constexpr int kStages = std::clamp(196608 / Segments / kStageBytes, 2, Segments == 1 ? 6 : 8);
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kFactors = kStages * Sides * kFactorBytes;
  static constexpr int kShared = 1024 + Segments * (kRingBytes + kFactors);
  static_assert(kShared <= 227 << 10);
  static_assert(Sides * Rows / 2 * 128 * 4 <= kRingBytes);  // sums of a segment
};

template <class Sum, int Rows, int Sides, int Segments>
__global__ void __launch_bounds__(Segments * 128)
    fp8_few_kernel(const __grid_constant__ Products work, const __grid_constant__ Fp8Maps maps, Fp8Tiles tiles) {
  using Size = Few<Rows, Sides, Segments>;
  extern __shared__ char raw[];
  __shared__ __align__(16) uint64_t barriers[Segments][Size::kStages];
  const int group = static_cast<int>(threadIdx.x) / 128, thread = static_cast<int>(threadIdx.x) % 128;
  char* base = raw + (((shared_address(raw) + 1023) & ~1023u) - shared_address(raw));
  char* ring = base + group * Size::kRingBytes;
  const float* factors = reinterpret_cast<const float*>(base + Segments * Size::kRingBytes + group * Size::kFactors);
  const uint32_t ring_at = shared_address(ring), factors_from = shared_address(factors);
  const uint32_t full = shared_address(barriers[group]);
  if (thread == 0) {
    for (uint32_t i = 0; i < Size::kStages; ++i) barrier_begin(full + 8 * i, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const Fp8Tile tile = place_of<kFp8Tile>(work, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y) * Rows);
  const bool last = static_cast<int>(blockIdx.y) + 1 == tiles.rows;
  const int first = group * tiles.segment, blocks = min(tiles.segment, tiles.blocks - first);
  const uint32_t bytes = static_cast<uint32_t>(Sides * (kTileBytes + kFactorBytes) +
                                               (last ? tiles.last_rows : tiles.box_rows) * kFp8Block);
  auto ask_weights = [&](int i) {
    const auto stage = static_cast<uint32_t>(i % Size::kStages);
    const uint32_t to = ring_at + stage * Size::kStageBytes, barrier = full + 8 * stage;
    barrier_expect(barrier, bytes);
#pragma unroll
    for (int side = 0; side < Sides; ++side) {
      const int part = Sides == 2 ? side : tile.part;
      copy_box(to + static_cast<uint32_t>(side * kTileBytes), maps.weights[part], (first + i) * kFp8Block,
               tile.first_output, barrier);
      copy_bytes(factors_from + (stage * Sides + static_cast<uint32_t>(side)) * kFactorBytes,
                 factors_at(work, part, tile.first_output, tiles.blocks, first + i), kFactorBytes, barrier,
                 read_once());
    }
  };
  auto ask_inputs = [&](int i) {
    const auto stage = static_cast<uint32_t>(i % Size::kStages);
    copy_box(ring_at + stage * Size::kStageBytes + Sides * kTileBytes, last ? maps.last_inputs : maps.inputs,
             (first + i) * kFp8Block, tile.first_row, full + 8 * stage);
  };
  const int early = min(Size::kStages, blocks);
  if (thread == 0) {
    for (int i = 0; i < early; ++i) ask_weights(i);
  }
  wait_for_previous();
  if (thread == 0) {
    asm volatile("fence.proxy.async;" ::: "memory");
    for (int i = 0; i < early; ++i) ask_inputs(i);
  }
  float total[Sides][Rows / 2] = {};
#pragma unroll 1
  for (int i = 0; i < blocks; ++i) {
    const auto stage = static_cast<uint32_t>(i % Size::kStages);
    const uint32_t at = ring_at + stage * Size::kStageBytes;
    barrier_wait(full + 8 * stage, static_cast<uint32_t>(i / Size::kStages) & 1);
    Sum sums[Sides][Rows / 2];  // the first product of a block writes them
    products_begin();
#pragma unroll
    for (int side = 0; side < Sides; ++side)
      multiply_block(at + static_cast<uint32_t>(side * kTileBytes), at + Sides * kTileBytes, sums[side]);
    products_end();
    products_finished<0>();
#pragma unroll
    for (int side = 0; side < Sides; ++side)
      add_block(factors + (stage * Sides + static_cast<uint32_t>(side)) * kFp8Tile, sums[side], total[side]);
    group_sync(1 + group, 128);
    if (thread == 0 && i + Size::kStages < blocks) {
      ask_weights(i + Size::kStages);
      ask_inputs(i + Size::kStages);
    }
  }
  if constexpr (Segments > 1) {  // the first group adds them in order
    float* room = reinterpret_cast<float*>(ring);
    if (group > 0) {
#pragma unroll
      for (int i = 0; i < Sides * Rows / 2; ++i) room[i * 128 + thread] = total[i / (Rows / 2)][i % (Rows / 2)];
    }
    __syncthreads();
    if (group > 0) return;
#pragma unroll
    for (int i = 0; i < Sides * Rows / 2; ++i) {
      float sum = 0.0f + total[i / (Rows / 2)][i % (Rows / 2)];
#pragma unroll
      for (int other = 1; other < Segments; ++other) sum += room[other * Size::kRingBytes / 4 + i * 128 + thread];
      total[i / (Rows / 2)][i % (Rows / 2)] = sum;
    }
  }
  scale_sums(work, Sides == 2 ? 0 : tile.part, tile.first_row, tile.first_output, total[0]);
  if constexpr (Sides == 1) {
    put(work, tile, total[0]);
  } else {
    scale_sums(work, 1, tile.first_row, tile.first_output, total[1]);
    each_result<Rows / 2>(work, tile,
                          [&](int row, int output, int i) { put_gated(work, row, output, total[0][i], total[1][i]); });
  }
}

template <class Sum, int Rows, int Sides, int Segments>
cudaError_t start_few(cudaStream_t stream, const Products& work) {
  using Size = Few<Rows, Sides, Segments>;
  static const bool prepared = prepare(fp8_few_kernel<Sum, Rows, Sides, Segments>, Size::kShared);
  static_cast<void>(prepared);
  Fp8Maps maps;
  Fp8Tiles tiles;
  if (!map_all(work, Rows, kFp8Tile, maps, tiles)) return cudaErrorInvalidValue;
  const Launch how(stream, dim3(count(tiles.outputs), count(tiles.rows)), Segments * 128, Size::kShared, 1,
                   kernels_wait());
  return cudaLaunchKernelEx(&how.config, fp8_few_kernel<Sum, Rows, Sides, Segments>, work, maps, tiles);
}
template <class Sum, int Rows>
cudaError_t start_few(cudaStream_t stream, const Products& work) {
  switch (work.segments) {
    case 1:
      return work.gated ? start_few<Sum, Rows, 2, 1>(stream, work) : start_few<Sum, Rows, 1, 1>(stream, work);
    case 2:
      return work.gated ? start_few<Sum, Rows, 2, 2>(stream, work) : start_few<Sum, Rows, 1, 2>(stream, work);
    default:
      return work.gated ? start_few<Sum, Rows, 2, 4>(stream, work) : start_few<Sum, Rows, 1, 4>(stream, work);
  }
}

// Tiles of many rows, which share what is brought, where there are enough of them.
template <class Sum>
cudaError_t start(cudaStream_t stream, const Products& work) {
  const int rows = work.coded.rows;
  if (rows <= 8) return start_few<Sum, 8>(stream, work);
  if (rows <= 16) return start_few<Sum, 16>(stream, work);
  if (rows <= 32) return start_few<Sum, 32>(stream, work);
  cudaError_t how = cudaSuccess;
  constexpr auto kMany = std::is_same_v<Sum, int> ? int8_many : fp8_many;
  if (rows > 64 && kMany(stream, work, how)) return how;
  return start_few<Sum, 64>(stream, work);
}

}  // namespace

cudaError_t fp8_rows(cudaStream_t stream, const Products& work) { return start<float>(stream, work); }
cudaError_t int8_rows(cudaStream_t stream, const Products& work) { return start<int>(stream, work); }

cudaError_t load_fp8_rows() { return load_kernels(); }

}  // namespace millrace::cuda
