#include "backend/cuda/kernels.h"
#include "backend/cuda/packed.h"

namespace millrace::cuda {
namespace {

// A thread for each sixteen bytes of the result.
__global__ void pack_kernel(const uint16_t* from, int64_t first_row, int64_t rows, int64_t cols, uint16_t* to) {
  const int64_t k_tiles = (cols + kTile - 1) / kTile, tiles = (rows + kTile - 1) / kTile * k_tiles;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < tiles * 32;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t tile = i / 32, row = tile / k_tiles * kTile + i % 32 / 4, col = tile % k_tiles * kTile + i % 4 * 2;
    uint16_t numbers[8];
    for (int j = 0; j < 8; ++j) {
      const int64_t r = row + j / 2 % 2 * 8, c = col + j / 4 * 8 + j % 2;
      numbers[j] = r < rows && c < cols ? from[r * cols + c] : uint16_t{0};
    }
    uint16_t* place = to + (first_row / kTile * k_tiles * 32 + i) * 8;
    for (int j = 0; j < 8; ++j) place[j] = numbers[j];
  }
}

}  // namespace

void pack_tiles(cudaStream_t stream, const std::byte* from, int64_t first_row, int64_t rows, int64_t cols,
                std::byte* to) {
  pack_kernel<<<2048, 256, 0, stream>>>(reinterpret_cast<const uint16_t*>(from), first_row, rows, cols,
                                        reinterpret_cast<uint16_t*>(to));
}

}  // namespace millrace::cuda
