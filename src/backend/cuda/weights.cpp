#include "backend/cuda/weights.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/kernels.h"
#include "backend/cuda/packed.h"
#include "base/check.h"

namespace millrace::cuda {
namespace {

constexpr int64_t kPiece = 16;  // bytes a row of records is padded to

int64_t record_bytes(DType type, int64_t cols) {
  int64_t bytes = 0;
  if (type == DType::q8_0) bytes = cols + cols / 32 * 2;
  if (type == DType::q4_0) bytes = cols / 2 + cols / 32 * 2;
  if (type == DType::q4_k) bytes = cols / 2 + cols / 32 * 2 + cols / 256 * 4;
  return (bytes + kPiece - 1) / kPiece * kPiece;
}

std::byte nibbles(int low, int high) { return static_cast<std::byte>(low | high << 4); }

// Sixteen bytes of a group of 32: byte 4t + i has number 8t + i below and 8t + 4 + i above.
template <class F>
void write_nibbles(std::byte* to, F&& number) {
  for (int byte = 0; byte < 16; ++byte)
    to[byte] = nibbles(number(byte / 4 * 8 + byte % 4), number(byte / 4 * 8 + 4 + byte % 4));
}

void record_q8_0(const std::byte* row, int64_t cols, std::byte* to) {
  for (int64_t group = 0; group < cols / 32; ++group) {
    std::memcpy(to + cols + group * 2, row + group * 34, 2);
    std::memcpy(to + group * 32, row + group * 34 + 2, 32);
  }
}

void record_q4_0(const std::byte* row, int64_t cols, std::byte* to) {
  for (int64_t group = 0; group < cols / 32; ++group) {
    const std::byte* from = row + group * 18;
    std::memcpy(to + cols / 2 + group * 2, from, 2);
    write_nibbles(to + group * 16, [&](int i) {
      const int byte = static_cast<int>(from[2 + i % 16]);
      return i < 16 ? byte & 15 : byte >> 4;
    });
  }
}

void record_q4_k(const std::byte* row, int64_t cols, std::byte* to) {
  for (int64_t super = 0; super < cols / 256; ++super) {
    const std::byte* from = row + super * 144;
    std::memcpy(to + cols / 2 + cols / 16 + super * 4, from, 4);
    const std::byte* packed = from + 4;  // twelve bytes: eight scales and minimums of six bits
    auto at = [&](int i) { return static_cast<int>(packed[i]); };
    for (int sub = 0; sub < 8; ++sub) {
      int scale, minimum;
      if (sub < 4) {
        scale = at(sub) & 63;
        minimum = at(sub + 4) & 63;
      } else {
        scale = (at(sub + 4) & 15) | (at(sub - 4) >> 6) << 4;
        minimum = at(sub + 4) >> 4 | (at(sub) >> 6) << 4;
      }
      std::byte* factors = to + cols / 2 + (super * 8 + sub) * 2;
      factors[0] = static_cast<std::byte>(scale);
      factors[1] = static_cast<std::byte>(minimum);
      const std::byte* numbers = from + 16 + sub / 2 * 32;
      write_nibbles(to + (super * 8 + sub) * 16, [&](int i) {
        const int byte = static_cast<int>(numbers[i]);
        return sub % 2 == 0 ? byte & 15 : byte >> 4;
      });
    }
  }
}

void record(DType type, const std::byte* row, int64_t cols, std::byte* to) {
  if (type == DType::q8_0) return record_q8_0(row, cols, to);
  if (type == DType::q4_0) return record_q4_0(row, cols, to);
  record_q4_k(row, cols, to);
}

}  // namespace

Kept kept_as(DType type, int64_t rows, int64_t cols, WeightUse use) {
  if (type == DType::f32) return {type, kRows, bytes_of(type, rows * cols)};
  if (type == DType::q8_0 || type == DType::q4_0 || type == DType::q4_k)
    return {type, kRecords, rows * record_bytes(type, cols)};
  const DType half = type == DType::f16 ? DType::f16 : DType::bf16;
  if (use == WeightUse::table || cols % 8 != 0) return {half, kRows, bytes_of(half, rows * cols)};
  return {half, kTiles, packed_bytes(rows, cols)};
}

Result<void> bring(const HostMatrix& matrix, const Kept& kept, std::byte* place, std::span<std::byte> room, Team& team,
                   cudaStream_t stream) {
  const int64_t row_from = bytes_of(matrix.type, matrix.cols);
  const int64_t row_to = kept.layout == kRecords ? kept.bytes / matrix.rows : bytes_of(kept.type, matrix.cols);
  const bool as_is = matrix.type == kept.type && kept.layout != kRecords;
  const int64_t step =
      std::min(matrix.rows, std::max<int64_t>(kTile, static_cast<int64_t>(room.size()) / row_to / kTile * kTile));
  if (step * row_to > static_cast<int64_t>(room.size()) && kept.layout == kTiles) {
    return error(Code::unsupported, "rows of {} bytes are longer than what can be brought to the GPU at once ({})",
                 row_to, room.size());
  }
  std::vector<std::byte> made(as_is ? 0 : static_cast<size_t>(step * row_to));
  for (int64_t first = 0; first < matrix.rows; first += step) {
    const int64_t rows = std::min(step, matrix.rows - first);
    const std::byte* source = matrix.bytes.data() + first * row_from;
    if (!as_is) {
      constexpr int64_t kRowsATask = 32;
      team.each((rows + kRowsATask - 1) / kRowsATask, [&](int64_t task, int) {
        std::vector<float> values;
        for (int64_t r = task * kRowsATask; r < std::min(rows, (task + 1) * kRowsATask); ++r) {
          std::byte* to = made.data() + r * row_to;
          if (kept.layout == kRecords) {
            record(kept.type, source + r * row_from, matrix.cols, to);
            continue;
          }
          values.resize(static_cast<size_t>(matrix.cols));
          format(matrix.type).to_float(source + r * row_from, values.data(), matrix.cols);
          format(kept.type).from_float(values.data(), to, matrix.cols);
        }
      });
      source = made.data();
    }
    std::byte* to = kept.layout == kTiles ? room.data() : place + first * row_to;
    TRY_VOID(checked(cudaMemcpyAsync(to, source, static_cast<size_t>(rows * row_to), cudaMemcpyHostToDevice, stream),
                     "bringing weights"));
    if (kept.layout == kTiles) pack_tiles(stream, room.data(), first, rows, matrix.cols, place);
    TRY_VOID(checked(cudaStreamSynchronize(stream), "bringing weights"));
  }
  return checked(cudaGetLastError(), "packing weights");
}

}  // namespace millrace::cuda
