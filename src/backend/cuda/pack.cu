// Rows of a file into panels, and quantised panels into panels of bfloat16.
#include "backend/cuda/quantised.cuh"
#include "backend/cuda/rows.cuh"
#include "backend/cuda/unpack.cuh"

namespace millrace::cuda {
namespace {

// A thread for each sixteen bytes of the result: eight inputs of an output.
__global__ void pack_halves_kernel(const uint16_t* from, int64_t rows, int64_t cols, uint4* to) {
  const int64_t chunks = chunks_of(cols), count = panels_of(rows) * chunks * 128;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t row = i / (chunks * 128) * kPanel + i % 128 / 64 * 8 + i % 8;
    const int64_t col = i / 128 % chunks * kChunkInputs + i % 64 / 8 * 8;
    const bool inside = row < rows && col < cols;  // cols is a multiple of eight
    to[i] = inside ? *reinterpret_cast<const uint4*>(from + row * cols + col) : uint4{};
  }
}

// A row of a file on its way into a panel: `file` is its format, `panel` the panel's.
struct Packing {
  DType file, panel;
  int64_t cols;

  // Inputs number i of those a lane has of a chunk, and the integer that stands there.
  __device__ int integer(const std::byte* row, int64_t first_col, int lane, int i) const {
    const int64_t col = first_col + i / 4 * 16 + lane % 4 * 2 + i % 4 / 2 * 8 + i % 2;
    return row != nullptr && col < cols ? stored_integer(file, row, static_cast<int>(col)) : 0;
  }
  // Four bytes of the small integers (of more than four bits the lowest four). `word` counts those of a lane's output.
  __device__ uint32_t integers(const std::byte* row, int64_t first_col, int lane, int word) const {
    uint32_t bits = 0;
    if (panel == DType::q8_0) {
      for (int i = 0; i < 4; ++i)
        bits |= static_cast<uint32_t>(integer(row, first_col, lane, word * 4 + i) + 128) << (8 * i);
      return bits;
    }
    for (int i = 0; i < 8; ++i)
      bits |= static_cast<uint32_t>(integer(row, first_col, lane, word * 8 + i) & 15) << (16 * (i % 2) + 4 * (i / 2));
    return bits;
  }
  // What is above the lowest four bits, so many bits each.
  __device__ uint32_t upper(const std::byte* row, int64_t first_col, int lane, int each) const {
    uint32_t bits = 0;
    for (int i = 0; i < 16; ++i)
      bits |= static_cast<uint32_t>(integer(row, first_col, lane, i) >> 4) << (16 * (i % 2) + each * (i / 2));
    return bits;
  }
  // As it is kept. Powers of two beyond 2^65 are no weights, and become that.
  __device__ float factor(const std::byte* row, int col, bool added) const {
    if (added) return stored_offset(file, row, col) * kAddedRaise;
    if (file == DType::mxfp4) return ldexpf(1.0f, min(byte_at(row, col / 32 * 17), 192) - 65);
    return stored_factor(file, row, col) * kFactorRaise;
  }
  // Four bytes of factors: those of two groups, or what is added there.
  __device__ uint32_t factors(const std::byte* row, int64_t first_col, bool added) const {
    const int group = panel == DType::q6_k ? 16 : 32;
    uint32_t bits = 0;
    for (int i = 0; i < 2; ++i) {
      const int64_t col = first_col + group * i;
      if (row == nullptr || col >= cols) continue;
      const float value = factor(row, static_cast<int>(col), added);
      bits |= uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(value))} << (16 * i);
    }
    return bits;
  }
  // Four bytes of a chunk, number `word` of it. source(output) is that output's row, or null.
  template <class Source>
  __device__ uint32_t word(int number, int64_t first_col, Source&& source) const {
    const int lane = number / 4 % 32;
    if (panel == DType::q8_0) {
      if (number < 256) return integers(source(lane / 4 + number / 128 * 8), first_col, lane, number % 4);
      const int at = number - 256;
      return factors(source(at / 2 + at % 2 * 8), first_col, false);
    }
    if (number < 128) return integers(source(lane / 4 + number % 4 / 2 * 8), first_col, lane, number % 2);
    int at = number - 128;
    if (panel == DType::q6_k) {
      if (at < 64) return upper(source(at / 8 + at % 2 * 8), first_col, at / 2, 2);
      at -= 64;
      return factors(source(at / 4 + at % 4 / 2 * 8), first_col + at % 2 * 32, false);
    }
    if (panel == DType::q5_k) {
      if (at < 32) return upper(source(at / 4), first_col, at, 1) | upper(source(at / 4 + 8), first_col, at, 1) << 8;
      at -= 32;
    }
    if (panel == DType::q4_k || panel == DType::q5_k)
      return factors(source(at / 4 + at % 4 / 2 * 8), first_col, at % 2 == 1);
    return factors(source(at / 2 + at % 2 * 8), first_col, false);
  }
};

// A thread for each four bytes.
__global__ void pack_quantised_kernel(Packing packing, const std::byte* from, int64_t row_bytes, int64_t rows,
                                      uint32_t* to) {
  const int words = chunk_bytes(packing.panel) / 4;
  const int64_t chunks = chunks_of(packing.cols), count = panels_of(rows) * chunks * words;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t chunk = i / words, first_row = chunk / chunks * kPanel, first_col = chunk % chunks * kChunkInputs;
    to[i] = packing.word(static_cast<int>(i % words), first_col, [&](int output) {
      return first_row + output < rows ? from + (first_row + output) * row_bytes : nullptr;
    });
  }
}

// A warp for each chunk.
template <DType Type>
__global__ void widen_kernel(const char* from, int64_t panels, int64_t cols, char* to) {
  wait_for_previous();
  const int64_t count = panels * chunks_of(cols), stride = int64_t{gridDim.x} * (blockDim.x / 32);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t i = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32; i < count; i += stride) {
    Unpack<Type> numbers;
    numbers.load(from + i * chunk_bytes(Type), lane);
    char* place = to + i * kChunkBytes + lane * 4;
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      const uint2 operand = numbers.half(step / 4, step % 4);
      *reinterpret_cast<uint32_t*>(place + step * 256) = raised(operand.x);
      *reinterpret_cast<uint32_t*>(place + step * 256 + 128) = raised(operand.y);
    }
  }
}

}  // namespace

void pack(cudaStream_t stream, DType type, const std::byte* from, int64_t rows, int64_t cols, std::byte* to) {
  if (type == DType::bf16 || type == DType::f16) {
    pack_halves_kernel<<<2048, 256, 0, stream>>>(reinterpret_cast<const uint16_t*>(from), rows, cols,
                                                 reinterpret_cast<uint4*>(to));
    return;
  }
  const int64_t row_bytes = bytes_of(type, cols);
  pack_quantised_kernel<<<2048, 256, 0, stream>>>({type, panel_type(type), cols}, from, row_bytes, rows,
                                                  reinterpret_cast<uint32_t*>(to));
}

void widen(cudaStream_t stream, DType type, const std::byte* from, int64_t panels, int64_t cols, std::byte* to) {
  const char* source = reinterpret_cast<const char*>(from);
  char* target = reinterpret_cast<char*>(to);
  constexpr unsigned kGrid = 132 * 8;
  if (type == DType::q8_0)
    return launch(stream, widen_kernel<DType::q8_0>, kGrid, 256, 0, source, panels, cols, target);
  if (type == DType::q4_0)
    return launch(stream, widen_kernel<DType::q4_0>, kGrid, 256, 0, source, panels, cols, target);
  if (type == DType::q5_k)
    return launch(stream, widen_kernel<DType::q5_k>, kGrid, 256, 0, source, panels, cols, target);
  if (type == DType::q6_k)
    return launch(stream, widen_kernel<DType::q6_k>, kGrid, 256, 0, source, panels, cols, target);
  if (type == DType::mxfp4)
    return launch(stream, widen_kernel<DType::mxfp4>, kGrid, 256, 0, source, panels, cols, target);
  launch(stream, widen_kernel<DType::q4_k>, kGrid, 256, 0, source, panels, cols, target);
}

cudaError_t load_pack() { return load_kernels(); }

}  // namespace millrace::cuda
