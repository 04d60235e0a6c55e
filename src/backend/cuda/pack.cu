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

// Four bytes of a quantised chunk, by where they lie: those of its small integers (of Q6_K the lowest four bits).
// `word` counts those of a lane's output.
__device__ uint32_t packed_integers(DType type, const std::byte* row, int64_t first_col, int64_t cols, int lane,
                                    int word) {
  const int per_word = type == DType::q8_0 ? 4 : 8;
  uint32_t bits = 0;
  for (int i = 0; i < per_word; ++i) {
    const int step = type == DType::q8_0 ? word : word * 2 + i / 4;
    const int64_t col = first_col + step * 16 + lane % 4 * 2 + i % 4 / 2 * 8 + i % 2;
    const int value = row != nullptr && col < cols ? stored_integer(type, row, static_cast<int>(col)) : 0;
    bits |= type == DType::q8_0 ? static_cast<uint32_t>(value + 128) << (8 * i)
                                : static_cast<uint32_t>(value & 15) << (16 * (i % 2) + 4 * (i / 2));
  }
  return bits;
}

// Four bytes of Q6_K's upper two bits: a lane's of one output.
__device__ uint32_t packed_upper(const std::byte* row, int64_t first_col, int64_t cols, int lane) {
  uint32_t bits = 0;
  for (int i = 0; i < 16; ++i) {
    const int64_t col = first_col + i / 4 * 16 + lane % 4 * 2 + i % 4 / 2 * 8 + i % 2;
    const int value = row != nullptr && col < cols ? stored_integer(DType::q6_k, row, static_cast<int>(col)) : 0;
    bits |= static_cast<uint32_t>(value >> 4) << (16 * (i % 2) + 2 * (i / 2));
  }
  return bits;
}

// A factor as it is kept. Powers of two beyond 2^65 are no weights, and become that.
__device__ float kept_factor(DType type, const std::byte* row, int64_t col, bool added) {
  if (type == DType::mxfp4) return ldexpf(1.0f, min(static_cast<int>(row[col / 32 * 17]), 192) - 65);
  if (type == DType::q6_k) return q6_k_factor(row, static_cast<int>(col)) * kFactorRaise;
  if (type != DType::q4_k) return half_at(row + col / 32 * (type == DType::q8_0 ? 34 : 18)) * kFactorRaise;
  const float2 both = scale_and_minimum(row + col / 256 * 144, static_cast<int>(col % 256 / 32));
  return added ? -both.y * kAddedRaise : both.x * kFactorRaise;
}

// Four bytes of its factors: those of two groups, or what is added there.
__device__ uint32_t packed_factors(DType type, const std::byte* row, int64_t first_col, int64_t cols, bool added) {
  const int group = type == DType::q6_k ? 16 : 32;
  uint32_t bits = 0;
  for (int i = 0; i < 2; ++i) {
    const int64_t col = first_col + group * i;
    if (row == nullptr || col >= cols) continue;
    const float value = kept_factor(type, row, col, added);
    bits |= uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(value))} << (16 * i);
  }
  return bits;
}

// Four bytes of a chunk, number `word` of it. source(output) is that output's row, or null.
template <class Source>
__device__ uint32_t packed_word(DType type, int word, int64_t first_col, int64_t cols, Source&& source) {
  const int lane = word / 4 % 32;
  if (type == DType::q8_0) {
    if (word < 256) return packed_integers(type, source(lane / 4 + word / 128 * 8), first_col, cols, lane, word % 4);
    const int factor = word - 256;
    return packed_factors(type, source(factor / 2 + factor % 2 * 8), first_col, cols, false);
  }
  if (word < 128) return packed_integers(type, source(lane / 4 + word % 4 / 2 * 8), first_col, cols, lane, word % 2);
  const int behind = word - 128;
  if (type == DType::q6_k) {
    if (behind < 64) return packed_upper(source(behind / 2 / 4 + behind % 2 * 8), first_col, cols, behind / 2);
    const int factor = behind - 64;
    return packed_factors(type, source(factor / 4 + factor % 4 / 2 * 8), first_col + factor % 2 * 32, cols, false);
  }
  if (type == DType::q4_k)
    return packed_factors(type, source(behind / 4 + behind % 4 / 2 * 8), first_col, cols, behind % 2 == 1);
  return packed_factors(type, source(behind / 2 + behind % 2 * 8), first_col, cols, false);
}

// A thread for each four bytes.
__global__ void pack_quantised_kernel(DType type, const std::byte* from, int64_t row_bytes, int64_t rows, int64_t cols,
                                      uint32_t* to) {
  const int words = chunk_bytes(type) / 4;
  const int64_t chunks = chunks_of(cols), count = panels_of(rows) * chunks * words;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t chunk = i / words, first_row = chunk / chunks * kPanel, first_col = chunk % chunks * kChunkInputs;
    to[i] = packed_word(type, static_cast<int>(i % words), first_col, cols, [&](int output) {
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
  if (type == DType::q6_k)
    return launch(stream, widen_kernel<DType::q6_k>, kGrid, 256, 0, source, panels, cols, target);
  if (type == DType::mxfp4)
    return launch(stream, widen_kernel<DType::mxfp4>, kGrid, 256, 0, source, panels, cols, target);
  launch(stream, widen_kernel<DType::q4_k>, kGrid, 256, 0, source, panels, cols, target);
}

cudaError_t load_pack() { return load_kernels(); }

}  // namespace millrace::cuda
