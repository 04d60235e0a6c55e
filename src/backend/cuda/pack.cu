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

// Four bytes of a quantised chunk: those of its small integers.
__device__ uint32_t packed_integers(DType type, const std::byte* row, int64_t first_col, int64_t cols, int word) {
  const int lane = type == DType::q8_0 ? word / 4 : word / 2, per_word = type == DType::q8_0 ? 4 : 8;
  uint32_t bits = 0;
  for (int i = 0; i < per_word; ++i) {
    const int step = type == DType::q8_0 ? word % 4 : word % 2 * 2 + i / 4;
    const int64_t col = first_col + step * 16 + lane % 4 * 2 + i % 4 / 2 * 8 + i % 2;
    const int value = row != nullptr && col < cols ? stored_integer(type, row, static_cast<int>(col)) : 0;
    bits |= type == DType::q8_0 ? static_cast<uint32_t>(value + 128) << (8 * i)
                                : static_cast<uint32_t>(value) << (16 * (i % 2) + 4 * (i / 2));
  }
  return bits;
}

// Four bytes of its factors: those of two groups of 32, or what is added there.
__device__ uint32_t packed_factors(DType type, const std::byte* row, int64_t first_col, int64_t cols, bool added) {
  uint32_t bits = 0;
  for (int i = 0; i < 2; ++i) {
    const int64_t col = first_col + 32 * i;
    if (row == nullptr || col >= cols) continue;
    float value;
    if (type == DType::q4_k) {
      const float2 both = scale_and_minimum(row + col / 256 * 144, static_cast<int>(col % 256 / 32));
      value = added ? -both.y : both.x;
    } else {
      value = half_at(row + col / 32 * (type == DType::q8_0 ? 34 : 18));
    }
    value *= added ? kAddedRaise : kFactorRaise;
    bits |= uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(value))} << (16 * i);
  }
  return bits;
}

// A thread for each four bytes.
__global__ void pack_quantised_kernel(DType type, const std::byte* from, int64_t row_bytes, int64_t rows, int64_t cols,
                                      uint32_t* to) {
  const int words = chunk_bytes(type) / 8, integers = type == DType::q8_0 ? 128 : 64;  // of half a chunk
  const int64_t chunks = chunks_of(cols), count = panels_of(rows) * 2 * chunks * words;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const int word = static_cast<int>(i % words), place = word - integers;
    const int output = word < integers ? word / (integers / 8) : type == DType::q4_k ? place / 2 : place;
    const int64_t half = i / words, row = half / 2 / chunks * kPanel + half % 2 * 8 + output;
    const int64_t first_col = half / 2 % chunks * kChunkInputs;
    const std::byte* source = row < rows ? from + row * row_bytes : nullptr;
    to[i] = word < integers ? packed_integers(type, source, first_col, cols, word)
                            : packed_factors(type, source, first_col, cols, type == DType::q4_k && place % 2 == 1);
  }
}

// A warp for each half of a chunk.
template <DType Type>
__global__ void widen_kernel(const char* from, int64_t panels, int64_t cols, char* to) {
  wait_for_previous();
  const int64_t chunks = chunks_of(cols), stride = int64_t{gridDim.x} * (blockDim.x / 32);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t i = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32; i < panels * 2 * chunks; i += stride) {
    Unpack<Type> numbers;
    numbers.load(from + i * (chunk_bytes(Type) / 2), lane);
    char* place = to + i * (kChunkBytes / 2) + lane * 4;
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const uint2 operand = numbers.step(step);
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
  const int64_t row_bytes = type == DType::q8_0   ? cols / 32 * 34
                            : type == DType::q4_0 ? cols / 32 * 18
                                                  : cols / 256 * 144;
  pack_quantised_kernel<<<2048, 256, 0, stream>>>(type, from, row_bytes, rows, cols, reinterpret_cast<uint32_t*>(to));
}

void widen(cudaStream_t stream, DType type, const std::byte* from, int64_t panels, int64_t cols, std::byte* to) {
  const char* source = reinterpret_cast<const char*>(from);
  char* target = reinterpret_cast<char*>(to);
  constexpr unsigned kGrid = 132 * 8;
  if (type == DType::q8_0)
    return launch(stream, widen_kernel<DType::q8_0>, kGrid, 256, 0, source, panels, cols, target);
  if (type == DType::q4_0)
    return launch(stream, widen_kernel<DType::q4_0>, kGrid, 256, 0, source, panels, cols, target);
  launch(stream, widen_kernel<DType::q4_k>, kGrid, 256, 0, source, panels, cols, target);
}

}  // namespace millrace::cuda
