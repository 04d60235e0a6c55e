// Rows of a file into panels, and quantised panels into panels of bfloat16.
#include "backend/cuda/quantised.cuh"
#include "backend/cuda/rows.cuh"
#include "backend/cuda/unpack.cuh"

namespace millrace::cuda {
namespace {

// A thread for each sixteen bytes of the result: eight inputs of an output.
__global__ void pack_halves_kernel(const uint16_t* from, int64_t rows, int64_t cols, uint4* to) {
  const int64_t chunks = (cols + kChunkInputs - 1) / kChunkInputs, count = panels_of(rows) * chunks * 128;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t row = i / (chunks * 128) * kPanel + i % 128 / 64 * 8 + i % 8;
    const int64_t col = i / 128 % chunks * kChunkInputs + i % 64 / 8 * 8;
    const bool inside = row < rows && col < cols;  // cols is a multiple of eight
    to[i] = inside ? *reinterpret_cast<const uint4*>(from + row * cols + col) : uint4{};
  }
}

// The bytes of a quantised unit, a thread for each four.
__device__ uint32_t packed_word(DType type, const std::byte* from, int64_t row_bytes, int64_t panel, int64_t first_col,
                                int64_t rows, int64_t cols, int word) {
  auto row_at = [&](int output) {
    return panel * kPanel + output < rows ? from + (panel * kPanel + output) * row_bytes : nullptr;
  };
  const int integers = type == DType::q8_0 ? 1024 : 512;  // words of them
  if (word < integers) {
    const int per_lane = type == DType::q8_0 ? 4 : 8;  // numbers of a word
    const int lane = word / 4 % 32, part = word / 128;
    uint32_t bits = 0;
    for (int i = 0; i < per_lane; ++i) {
      const int number = type == DType::q8_0 ? word % 2 * 4 + i : i;
      const int step = type == DType::q8_0 ? part * 2 + word % 4 / 2 : part * 4 + word % 4;
      const std::byte* row = row_at(lane_output(lane, number));
      const int64_t col = first_col + step * 16 + lane_input(lane, number);
      const bool inside = row != nullptr && col < cols;
      if (type == DType::q8_0) {
        const int value = inside ? stored_integer(type, row, static_cast<int>(col)) : 0;
        bits |= static_cast<uint32_t>(value + 128) << (8 * i);
      } else {
        const int value = inside ? stored_integer(type, row, static_cast<int>(col)) : 0;
        bits |= static_cast<uint32_t>(value) << (16 * (i % 2) + 4 * (i / 2));
      }
    }
    return bits;
  }
  const int place = word - integers, per_group = type == DType::q4_k ? 16 : 8;
  const int group = place / per_group, g = place % per_group / (per_group / 8);
  uint32_t bits = 0;
  for (int i = 0; i < 2; ++i) {
    const std::byte* row = row_at(g + 8 * i);
    const int64_t col = first_col + group * 32;
    if (row == nullptr || col >= cols) continue;
    uint16_t half;
    if (type == DType::q8_0) {
      half = *reinterpret_cast<const uint16_t*>(row + col / 32 * 34);
    } else {
      float factor = 0;
      if (type == DType::q4_0) {
        factor = half_at(row + col / 32 * 18);
      } else {
        const float2 both = scale_and_minimum(row + col / 256 * 144, static_cast<int>(col % 256 / 32));
        factor = place % 2 == 0 ? both.x : -both.y;
      }
      half = __bfloat16_as_ushort(__float2bfloat16_rn(factor));
    }
    bits |= uint32_t{half} << (16 * i);
  }
  return bits;
}

__global__ void pack_quantised_kernel(DType type, const std::byte* from, int64_t row_bytes, int64_t rows, int64_t cols,
                                      uint32_t* to) {
  const Unit unit = unit_of(type);
  const int words = unit.bytes / 4;
  const int64_t units = (cols + unit.inputs - 1) / unit.inputs, count = panels_of(rows) * units * words;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t number = i / words;
    to[i] = packed_word(type, from, row_bytes, number / units, number % units * unit.inputs, rows, cols,
                        static_cast<int>(i % words));
  }
}

// A warp for each 64 inputs of a panel.
template <DType Type>
__global__ void widen_kernel(const char* from, int64_t panels, int64_t cols, char* to) {
  let_next_start();
  wait_for_previous();
  constexpr Unit kUnit = unit_of(Type);
  const int64_t chunks = (cols + kChunkInputs - 1) / kChunkInputs, units = (cols + kUnit.inputs - 1) / kUnit.inputs;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int64_t stride = int64_t{gridDim.x} * (blockDim.x / 32);
  for (int64_t i = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32; i < panels * chunks; i += stride) {
    const int64_t panel = i / chunks, chunk = i % chunks;
    const char* unit = from + (panel * units + chunk / 4) * kUnit.bytes;
    char* chunk_to = to + i * kChunkBytes;
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const int at = static_cast<int>(chunk % 4) * 4 + step;
      Unpack<Type> numbers;
      numbers.load(unit, at / Unpack<Type>::kSteps, lane);
      const uint4 operand = numbers.step(at % Unpack<Type>::kSteps);
      char* place = chunk_to + step * 256 + g * 16 + t * 4;
      *reinterpret_cast<uint32_t*>(place) = operand.x;
      *reinterpret_cast<uint32_t*>(place + 1024) = operand.y;
      *reinterpret_cast<uint32_t*>(place + 128) = operand.z;
      *reinterpret_cast<uint32_t*>(place + 1024 + 128) = operand.w;
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
