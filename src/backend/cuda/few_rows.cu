// Products of at most eight rows, at the speed of memory. A thread group takes sixteen outputs; each of its eight warps
// goes through an eighth of the inputs in order, sixteen at a time, and the eight sums are added in order. That is what
// a product means on this backend (many_rows.cu adds in the same order), so rows come out equal, however many there
// are.
//
// Weights lie in the order the matrix instructions want them (packed.h) and go straight from memory to registers, so
// many reads ahead that memory never waits; the first of them are under way before the kernel in front has ended.
#include <type_traits>

#include "backend/cuda/packed.h"
#include "backend/cuda/rows.cuh"

namespace millrace::cuda {
namespace {

constexpr int kWarps = kSlices;
constexpr int kThreads = 32 * kWarps;
constexpr int kAhead = 16;  // reads under way in a warp, of 512 bytes each
constexpr int kSharedBytes = 110 << 10;
static_assert(kThreads == kRowThreads);

// A row of inputs in shared memory: in every 32, what a lane needs for two steps lies together. Rows start half a bank
// row apart.
__host__ __device__ constexpr int input_pitch(int cols) { return (cols * 2 + 127) / 128 * 128 + 64; }
__device__ inline int input_place(int k) {
  return (k & ~31) + (k % 8 / 2) * 8 + k % 32 / 16 * 4 + k % 16 / 8 * 2 + k % 2;
}

template <class T>
__device__ T as(float value) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(value);
  else
    return __float2bfloat16_rn(value);
}

template <class T>
__device__ void multiply(float (&sums)[4], const uint4& weights, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>)
    multiply_add_f16(sums, weights, b0, b1);
  else
    multiply_add(sums, weights, b0, b1);
}

template <class T>
__device__ void bring_input(const FewRows& work, const Norm& norm, bool has_norm, char* inputs, const float* weight,
                            float* staged, float* room) {
  const int cols = work.cols, rows = work.in.rows, pitch = input_pitch(cols);
  const char* from = static_cast<const char*>(work.in.data);
  for (int i = threadIdx.x; i < rows * 16; i += kThreads) {  // what the last tile has beyond the row
    const int col = cols + i % 16;
    if (col < (cols + 15) / 16 * 16) reinterpret_cast<T*>(inputs + i / 16 * pitch)[input_place(col)] = as<T>(0);
  }
  if (!has_norm && work.in.form == (work.half ? Form::f16 : Form::bf16)) {
#pragma unroll 8
    for (int i = threadIdx.x; i < rows * (cols / 8); i += kThreads) {
      const int row = i / (cols / 8), eighth = i % (cols / 8);
      const uint4 eight = reinterpret_cast<const uint4*>(from + row * work.in.stride)[eighth];
      uint32_t* pairs = reinterpret_cast<uint32_t*>(inputs + row * pitch) + input_place(eighth * 8) / 2;
      pairs[0] = eight.x;
      pairs[4] = eight.y;
      pairs[8] = eight.z;
      pairs[12] = eight.w;
    }
    return;
  }
  for (int row = 0; row < rows; ++row) {
    T* to = reinterpret_cast<T*>(inputs + row * pitch);
    if (!has_norm) {
#pragma unroll 8
      for (int i = threadIdx.x; i < cols; i += kThreads) to[input_place(i)] = as<T>(read(work.in, row, i));
      continue;
    }
    stage_row(reinterpret_cast<const float*>(from + row * work.in.stride), cols, staged);
    const float2 factors = norm_factors(norm.kind, norm.epsilon, cols, room, [&](int i) { return staged[i]; });
#pragma unroll 8
    for (int i = threadIdx.x; i < cols; i += kThreads) {
      const float value = normed(staged[i], factors, norm.weight != nullptr ? weight : nullptr, norm.bias, i);
      to[input_place(i)] = as<T>(value);
      if (blockIdx.x == 0) write(work.normed, row, i, value);
    }
    rows_sync();
  }
}

// Which tile of which part a unit (and, of gated ones, a side) is.
struct Place {
  int part, tile;
};
template <bool Gated>
__device__ inline Place place(const FewRows& work, int segment) {
  if constexpr (Gated) return {segment % 2, static_cast<int>(blockIdx.x) + segment / 2 * static_cast<int>(gridDim.x)};
  Place at = {0, static_cast<int>(blockIdx.x) + segment * static_cast<int>(gridDim.x)};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int tiles = (work.parts[i].rows + kTile - 1) / kTile;
    if (at.part == i && i + 1 < work.count && at.tile >= tiles) at.tile -= tiles, at.part = i + 1;
  }
  return at;
}

// How a thread group's work is cut: segments are the tiles it computes (of gated products gate and up in turn), and
// each warp has `steps` tiles of inputs in each, from `begin` on.
struct Cut {
  int segments, k_tiles, begin, steps;
};
template <bool Gated>
__device__ Cut cut_of(const FewRows& work) {
  int units = 0;
  for (int i = 0; i < (Gated ? 1 : work.count); ++i) units += (work.parts[i].rows + kTile - 1) / kTile;
  const int all = static_cast<int>(gridDim.x), mine = (units - static_cast<int>(blockIdx.x) + all - 1) / all;
  const int k_tiles = (work.cols + 15) / 16, warp = static_cast<int>(threadIdx.x) / 32;
  const int begin = slice_begin(k_tiles, warp);
  return {Gated ? 2 * mine : mine, k_tiles, begin, slice_begin(k_tiles, warp + 1) - begin};
}

// What a warp reads next: groups of kAhead steps of one segment after the other.
template <bool Gated>
struct Stream {
  int segment = 0, step = 0;
  const uint4* from = nullptr;

  __device__ int next(const FewRows& work, const Cut& cut) {  // how many reads of the group are real
    if (segment >= cut.segments) return 0;
    if (step == 0) {
      const Place at = place<Gated>(work, segment);
      from = reinterpret_cast<const uint4*>(work.parts[at.part].weights) +
             (int64_t{at.tile} * cut.k_tiles + cut.begin) * 32 + threadIdx.x % 32;
    } else {
      from += kAhead * 32;
    }
    const int real = cut.steps - step < kAhead ? cut.steps - step : kAhead;
    step += kAhead;
    if (step >= cut.steps) step = 0, ++segment;
    return real;
  }
};

// The eight warps' sums of a segment, added in order, and where they go. `gate` is kept from one segment to the next.
template <bool Gated>
__device__ void finish(const FewRows& work, int segment, const float (&sheet)[kWarps][kFewRows][kTile], float& gate) {
  const Place at = place<Gated>(work, segment);
  const FewRows::Part& part = work.parts[at.part];
  const int token = static_cast<int>(threadIdx.x) / kTile,
            row = at.tile * kTile + static_cast<int>(threadIdx.x) % kTile;
  if (token >= work.in.rows || row >= part.rows) return;
  float value = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) value += sheet[i][token][threadIdx.x % kTile];
  if (part.bias != nullptr) value += part.bias[row];
  if constexpr (Gated) {
    if (segment % 2 == 0) {
      gate = value;
      return;
    }
    const View out = {work.parts[0].out, work.parts[0].out_stride * 4, work.in.rows, part.rows, work.out_form};
    write(out, token, row, activated(work.activation, gate) * value);
  } else {
    part.out[token * part.out_stride + row] = value;
    if (work.residual == nullptr) return;
    float* to = work.residual + token * work.residual_stride + row;
    *to = *to + work.residual_scale * value;
  }
}

template <class T, bool Gated>
__global__ void __launch_bounds__(kThreads, 2) few_rows_kernel(FewRows work, Norm norm, bool has_norm) {
  extern __shared__ __align__(128) char shared[];
  __shared__ float room[kWarps];
  __shared__ float partial[2][kWarps][kFewRows][kTile];
  let_next_start();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const Cut cut = cut_of<Gated>(work);
  Stream<Gated> stream;
  uint4 ring[kAhead];
  const int real = stream.next(work, cut);
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    if (j < real) ring[j] = load_once(stream.from + j * 32);
  }

  float* staged = reinterpret_cast<float*>(shared + work.in.rows * input_pitch(work.cols));
  float* weight = staged + work.cols;  // of the norm: fixed at load, so there before the kernel in front is done
  if (has_norm && norm.weight != nullptr) stage_row(norm.weight, work.cols, weight);
  wait_for_previous();
  bring_input<T>(work, norm, has_norm, shared, weight, staged, room);
  __syncthreads();

  const int g = lane / 4, t = lane % 4;
  const bool filled = g < work.in.rows;
  const uint4* b = reinterpret_cast<const uint4*>(shared + (filled ? g : 0) * input_pitch(work.cols)) + t;
  float gate = 0;
  for (int segment = 0; segment < cut.segments; ++segment) {
    float sums[4] = {};
    for (int s = 0; s < cut.steps; s += kAhead) {
      const int next = stream.next(work, cut);
      uint4 both = {};  // two steps' inputs lie together
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int step = cut.begin + s + j;
        if (filled && s + j < cut.steps && (j == 0 || step % 2 == 0)) both = b[step / 2 * 4];
        if (s + j < cut.steps)
          multiply<T>(sums, ring[j], step % 2 != 0 ? both.z : both.x, step % 2 != 0 ? both.w : both.y);
        if (j < next) ring[j] = load_once(stream.from + j * 32);
      }
    }
    float(&sheet)[kWarps][kFewRows][kTile] = partial[segment % 2];
#pragma unroll
    for (int i = 0; i < 4; ++i) sheet[warp][2 * t + i % 2][g + i / 2 * 8] = sums[i];
    __syncthreads();
    finish<Gated>(work, segment, sheet, gate);
  }
}

// Inputs; for the norm two rows of float32 numbers.
int64_t input_bytes(int64_t rows, int64_t cols, bool norm) {
  return rows * input_pitch(static_cast<int>(cols)) + (norm ? cols * 8 : 0) + 64;
}

template <class T, bool Gated>
void start(cudaStream_t stream, const FewRows& work) {
  static const bool prepared = prepare(few_rows_kernel<T, Gated>, kSharedBytes);
  static_cast<void>(prepared);
  int units = 0;
  for (int i = 0; i < (Gated ? 1 : work.count); ++i) units += (work.parts[i].rows + kTile - 1) / kTile;
  const int most = 2 * multiprocessors(), grid = units < most ? units : most;
  const Norm none;
  launch(stream, few_rows_kernel<T, Gated>, static_cast<unsigned>(grid), kThreads,
         static_cast<size_t>(input_bytes(work.in.rows, work.cols, work.norm != nullptr)), work,
         work.norm != nullptr ? *work.norm : none, work.norm != nullptr);
}

}  // namespace

bool few_rows_fit(int32_t rows, int32_t cols, bool norm) {
  return rows <= kFewRows && input_bytes(rows, cols, norm) <= kSharedBytes;
}

void few_rows(cudaStream_t stream, const FewRows& work) {
  if (work.half) return work.gated ? start<__half, true>(stream, work) : start<__half, false>(stream, work);
  return work.gated ? start<__nv_bfloat16, true>(stream, work) : start<__nv_bfloat16, false>(stream, work);
}

}  // namespace millrace::cuda
