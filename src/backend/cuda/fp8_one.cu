// One row of inputs times FP8 or INT8 weights, the row normed and rounded by every thread group for itself, while its
// first weights are on their way: no kernel stands before the product. Where outputs are few, two thread groups, a
// cluster, have the four segments of 64 outputs, so that all multiprocessors have something to read.
//
// The row's codes are the columns of the instruction eight blocks at a time: of the eight columns of a product the one
// that belongs to its weights is taken. Sums, and the order they are added in, are those of fp8_rows.cu.
#include "backend/cuda/fp8_code.cuh"
#include "backend/cuda/fp8_rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kThreads = 256, kGroups = 2;
static_assert(kThreads == kRowThreads);
constexpr int kStages = 6;
constexpr int kStageBytes = kTileBytes + kFactorBytes;
constexpr int kRingBytes = kStages * kStageBytes;
constexpr int kMostCols = kHeldEights * 8 * kThreads, kMostNormed = 32 * kThreads;
constexpr int kMostShared = 1024 + kGroups * kRingBytes + kMostCols + 1024;

struct OneRow {
  int blocks = 0, segment = 0;  // of inputs, and of a segment of them
  int code_bytes = 0;           // of a thread group's part of the row, in tiles of eight blocks
};

// Inputs first, first + 1 and so on of the row, as codes, where the instruction finds them; those outside of this
// thread group's blocks are left out.
struct CodePlace {
  char* codes;
  int first_block, segment, blocks, segment_bytes;  // the group's first block; blocks of a segment; the group's

  __device__ char* at(int col) const {
    const int block = col / kFp8Block - first_block;
    if (block < 0 || block >= blocks) return nullptr;
    const int in = block % segment, c = col % kFp8Block;
    return codes + block / segment * segment_bytes + in / 8 * 1024 + in % 8 * 128 + ((c / 16) ^ (in % 8)) * 16 + c % 16;
  }
};

// Returns what sums are multiplied with.
__device__ inline float code_row(const Products& work, bool integers, const CodePlace& place, float* room) {
  const auto* from = static_cast<const uint4*>(work.in.data);
  const int eights = work.cols / 8, thread = static_cast<int>(threadIdx.x);
  uint4 values[kHeldEights];
  float largest = 0;
#pragma unroll
  for (int j = 0; j < kHeldEights; ++j)
    values[j] = thread + j * kThreads < eights ? from[thread + j * kThreads] : uint4{};
#pragma unroll
  for (int j = 0; j < kHeldEights; ++j)
    largest = fmaxf(
        largest, fmaxf(largest_of(four_of(values[j].x, values[j].y)), largest_of(four_of(values[j].z, values[j].w))));
  const Factor factor = row_factor_of(largest, integers, room);
#pragma unroll
  for (int j = 0; j < kHeldEights; ++j) {
    const int i = thread + j * kThreads;
    char* to = i < eights ? place.at(i * 8) : nullptr;
    if (to != nullptr)
      *reinterpret_cast<uint2*>(to) = {codes_of(integers, four_of(values[j].x, values[j].y), factor.up),
                                       codes_of(integers, four_of(values[j].z, values[j].w), factor.up)};
  }
  return factor.down;
}

template <int Each>
__device__ float code_normed_row(const Products& work, const Norm& norm, bool integers, const CodePlace& place,
                                 float* sums, float* room) {
  NormedRow<Each> numbers(norm.kind, norm.epsilon, work.cols, norm.weight);
  numbers.load_weights();
  wait_for_previous();
  numbers.load([&](int i, int left) { return read_four(work.in, 0, i, left); });
  float largest = 0;
  numbers.finish(norm.bias, sums, [&](int i, const float4& four, int left) {
    const float4 rounded = {as_bfloat16(four.x), as_bfloat16(four.y), as_bfloat16(four.z), as_bfloat16(four.w)};
    largest = fmaxf(largest, largest_of(rounded));
    if (blockIdx.x == 0) write_four(work.normed, 0, i, rounded, left);
  });
  const Factor factor = row_factor_of(largest, integers, room);
  numbers.each([&](int j, int i) {
    const float4& four = numbers.values[j];
    if (char* to = place.at(i))
      *reinterpret_cast<uint32_t*>(to) = codes_of(
          integers, {as_bfloat16(four.x), as_bfloat16(four.y), as_bfloat16(four.z), as_bfloat16(four.w)}, factor.up);
  });
  return factor.down;
}

// The first group's segments and the second's meet in shared memory of the cluster's first thread group.
__device__ inline void put_there(const float* room, int i, float value) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, 0;\nst.shared::cluster.f32 [there], %1;\n}" ::"r"(
          shared_address(room + i)),
      "f"(value)
      : "memory");
}

template <class Sum, bool Gated, bool Normed>
__global__ void __launch_bounds__(kThreads)
    fp8_one_kernel(const __grid_constant__ Products work, const __grid_constant__ Norm norm,
                   const __grid_constant__ Fp8Maps maps, OneRow one) {
  constexpr bool kIntegers = std::is_same_v<Sum, int>;
  extern __shared__ char raw[];
  __shared__ __align__(16) uint64_t barriers[kGroups][kStages];
  __shared__ float sums_room[8], most_room[8], totals[4][kFp8Tile];
  const int group = static_cast<int>(threadIdx.x) / 128, thread = static_cast<int>(threadIdx.x) % 128,
            lane = thread % 32;
  char* base = raw + (((shared_address(raw) + 1023) & ~1023u) - shared_address(raw));
  char* ring = base + group * kStages * kTileBytes;
  char* all_factors = base + kGroups * kStages * kTileBytes;
  const auto* factors = reinterpret_cast<const float*>(all_factors) + group * kStages * kFp8Tile;
  char* codes = all_factors + kGroups * kStages * kFactorBytes;  // a multiple of 1,024 behind base
  const uint32_t ring_at = shared_address(ring), factors_at_ = shared_address(factors),
                 full = shared_address(barriers[group]);
  if (thread == 0) {
    for (uint32_t i = 0; i < kStages; ++i) barrier_begin(full + 8 * i, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if constexpr (!Gated) cluster_arrive();
  const int rank = Gated ? 0 : cluster_rank();
  const Fp8Tile tile = place_of<kFp8Tile>(work, static_cast<int>(blockIdx.x) / (Gated ? 1 : 2), 0);
  const int part = Gated ? group : tile.part;
  const int segment = Gated ? 0 : rank * 2 + group;
  const int first = segment * one.segment, blocks = min(one.segment, one.blocks - first);
  auto ask = [&](int i) {
    const auto stage = static_cast<uint32_t>(i % kStages);
    const uint32_t barrier = full + 8 * stage;
    barrier_expect(barrier, kStageBytes);
    copy_box(ring_at + stage * kTileBytes, maps.weights[part], (first + i) * kFp8Block, tile.first_output, barrier);
    copy_bytes(factors_at_ + stage * kFactorBytes, factors_at(work, part, tile.first_output, one.blocks, first + i),
               kFactorBytes, barrier, read_once());
  };
  __syncthreads();
  if (thread == 0) {
    for (int i = 0; i < min(kStages, blocks); ++i) ask(i);
  }
  // Both groups' blocks are coded together.
  const int segment_bytes = (one.segment + 7) / 8 * 1024;
  const CodePlace place = {codes, Gated ? 0 : rank * 2 * one.segment, one.segment,
                           min((Gated ? 1 : 2) * one.segment, one.blocks - (Gated ? 0 : rank * 2 * one.segment)),
                           segment_bytes};
  float row_factor = 0;
  if constexpr (Normed) {
    row_factor = work.cols <= 16 * kThreads ? code_normed_row<4>(work, norm, kIntegers, place, sums_room, most_room)
                                            : code_normed_row<8>(work, norm, kIntegers, place, sums_room, most_room);
  } else {
    wait_for_previous();
    row_factor = code_row(work, kIntegers, place, most_room);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint32_t inputs = shared_address(codes) + static_cast<uint32_t>(Gated ? 0 : group * segment_bytes);
  const int output = thread / 32 * 16 + lane / 4;
  float low = 0, high = 0;
#pragma unroll 1
  for (int i = 0; i < blocks; ++i) {
    const auto stage = static_cast<uint32_t>(i % kStages);
    barrier_wait(full + 8 * stage, static_cast<uint32_t>(i / kStages) & 1);
    Sum sums[4];
    products_begin();
    multiply_block(ring_at + stage * kTileBytes, inputs + static_cast<uint32_t>(i / 8 * 1024), sums);
    products_end();
    products_finished<0>();
    const int from = (lane & ~3) | (i % 8 / 2);
    const float mine[2] = {static_cast<float>(i % 2 == 0 ? sums[0] : sums[1]),
                           static_cast<float>(i % 2 == 0 ? sums[2] : sums[3])};
    const float* own = factors + stage * kFp8Tile + output;
    low = __fmaf_rn(__shfl_sync(~0u, mine[0], from), own[0], low);
    high = __fmaf_rn(__shfl_sync(~0u, mine[1], from), own[8], high);
    group_sync(1 + group, 128);
    if (thread == 0 && i + kStages < blocks) ask(i + kStages);
  }
  const int row = Gated ? group : segment;
  if constexpr (Gated) {
    if (lane % 4 == 0) totals[row][output] = low, totals[row][output + 8] = high;
    __syncthreads();
  } else {
    cluster_wait();  // the other thread group is there
    if (lane % 4 == 0) {
      put_there(totals[row], output, low);
      put_there(totals[row], output + 8, high);
    }
    cluster_sync();
    if (rank > 0) return;
  }
  const int mine = static_cast<int>(threadIdx.x), at = tile.first_output + mine;
  const Products::Part& to = work.parts[tile.part];
  if (mine >= kFp8Tile || at >= to.rows) return;
  auto finished = [&](const Products::Part& of, float sum) {
    sum *= row_factor;
    return of.bias != nullptr ? sum + of.bias[at] : sum;
  };
  if constexpr (Gated) {
    put_gated(work, 0, at, finished(work.parts[0], totals[0][mine]), finished(work.parts[1], totals[1][mine]));
  } else {
    const float sum = finished(to, (((0.0f + totals[0][mine]) + totals[1][mine]) + totals[2][mine]) + totals[3][mine]);
    if (work.residual != nullptr)
      work.residual[at] += work.residual_scale * sum;
    else
      to.out[at] = sum;
  }
}

template <class Sum, bool Gated, bool Normed>
cudaError_t start(cudaStream_t stream, const Products& work) {
  static const bool prepared = prepare(fp8_one_kernel<Sum, Gated, Normed>, kMostShared);
  static_cast<void>(prepared);
  if (encoder() == nullptr) return cudaErrorNotSupported;
  Fp8Maps maps;
  int tiles = 0;
  for (int i = 0; i < work.count; ++i) {
    const Products::Part& part = work.parts[i];
    if (!work.gated || i == 0) tiles += (part.rows + kFp8Tile - 1) / kFp8Tile;
    if (!map_codes(maps.weights[i], part.weights, work.cols, fp8_rows_of(part.rows), work.cols, kFp8Tile))
      return cudaErrorInvalidValue;
  }
  OneRow one = {.blocks = work.cols / kFp8Block, .segment = fp8_segment_blocks(work.cols, work.segments)};
  one.code_bytes = (Gated ? 1 : 2) * ((one.segment + 7) / 8 * 1024);
  const Norm none = {};
  const Launch how(stream, count(int64_t{tiles} * (Gated ? 1 : 2)), kThreads,
                   static_cast<size_t>(1024 + kGroups * kRingBytes + one.code_bytes), Gated ? 1 : 2, kernels_wait());
  return cudaLaunchKernelEx(&how.config, fp8_one_kernel<Sum, Gated, Normed>, work,
                            work.norm != nullptr ? *work.norm : none, maps, one);
}
template <class Sum>
cudaError_t start(cudaStream_t stream, const Products& work) {
  if (work.gated)
    return work.norm != nullptr ? start<Sum, true, true>(stream, work) : start<Sum, true, false>(stream, work);
  return work.norm != nullptr ? start<Sum, false, true>(stream, work) : start<Sum, false, false>(stream, work);
}

}  // namespace

bool fp8_one_fits(const Products& work, bool normed) {
  const View& in = work.in;
  if (in.rows != 1 || work.cols % kFp8Block != 0 || work.segments != (work.gated ? 1 : 4)) return false;
  if (work.gated && (work.parts[0].rows + kFp8Tile - 1) / kFp8Tile > 2 * multiprocessors()) return false;
  if (normed) return in.form == Form::f32 && work.cols <= kMostNormed;
  return in.form == Form::bf16 && work.cols <= kMostCols && reinterpret_cast<uintptr_t>(in.data) % 16 == 0;
}

cudaError_t fp8_one(cudaStream_t stream, const Products& work) {
  return work.type == DType::int8_128 ? start<int>(stream, work) : start<float>(stream, work);
}

cudaError_t load_fp8_one() { return load_kernels(); }

}  // namespace millrace::cuda
