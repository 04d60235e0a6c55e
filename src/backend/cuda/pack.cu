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

// Four bytes of a quantised chunk, by where they lie: those of its small integers. `word` counts those of a lane's
// output.
__device__ uint32_t packed_integers(DType type, const std::byte* row, int64_t first_col, int64_t cols, int lane,
                                    int word) {
  const int per_word = type == DType::q8_0 ? 4 : 8;
  uint32_t bits = 0;
  for (int i = 0; i < per_word; ++i) {
    const int step = type == DType::q8_0 ? word : word * 2 + i / 4;
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
  const bool bytes = type == DType::q8_0, adds = type == DType::q4_k;
  const int words = chunk_bytes(type) / 4, integers = bytes ? 256 : 128;
  const int64_t chunks = chunks_of(cols), count = panels_of(rows) * chunks * words;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const int word = static_cast<int>(i % words), factor = word - integers, lane = word / 4 % 32;
    const int64_t chunk = i / words, first_row = chunk / chunks * kPanel, first_col = chunk % chunks * kChunkInputs;
    auto source = [&](int output) {
      return first_row + output < rows ? from + (first_row + output) * row_bytes : nullptr;
    };
    if (factor >= 0) {
      const int output = adds ? factor / 4 + factor % 4 / 2 * 8 : factor / 2 + factor % 2 * 8;
      to[i] = packed_factors(type, source(output), first_col, cols, adds && factor % 2 == 1);
    } else {
      const int side = bytes ? word / 128 : word % 4 / 2;
      to[i] = packed_integers(type, source(lane / 4 + side * 8), first_col, cols, lane, bytes ? word % 4 : word % 2);
    }
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

cudaError_t load_pack() { return load_kernels(); }

}  // namespace millrace::cuda
