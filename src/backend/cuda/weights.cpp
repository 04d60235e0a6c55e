#include "backend/cuda/weights.h"

#include <algorithm>

#include "backend/cuda/kernels.h"
#include "backend/cuda/packed.h"

namespace millrace::cuda {

Kept kept_as(DType type, int64_t rows, int64_t cols, WeightUse use, const Family& family) {
  if (type == DType::fp8_128 && use == WeightUse::linear && family.fp8_rows != nullptr)
    return {type, kFp8, fp8_bytes(rows, cols)};
  if (type == DType::f32) return {type, kRows, bytes_of(type, rows * cols)};
  if (use == WeightUse::table || cols % 8 != 0) {
    const DType kept = read_as_filed(type) ? type : DType::bf16;
    return {kept, kRows, bytes_of(kept, rows * cols)};
  }
  return {panel_type(type), kPanels, packed_bytes(panel_type(type), rows, cols)};
}

Result<void> bring(const HostMatrix& matrix, const Kept& kept, std::byte* place, std::span<std::byte> room, Team& team,
                   cudaStream_t stream) {
  const bool panels = kept.layout != kRows, as_is = matrix.type == kept.type || (panels && read_as_filed(matrix.type));
  const DType moved = as_is ? matrix.type : kept.type;  // rows on their way
  const int64_t row_from = bytes_of(matrix.type, matrix.cols), row_to = bytes_of(moved, matrix.cols);
  const int64_t room_bytes = static_cast<int64_t>(room.size());
  const int64_t step = std::min(matrix.rows, std::max<int64_t>(kPanel, room_bytes / row_to / kPanel * kPanel));
  if (step * row_to > room_bytes && panels) {
    return error(Code::unsupported, "rows of {} bytes are longer than what can be brought to the GPU at once ({})",
                 row_to, room_bytes);
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
          values.resize(static_cast<size_t>(matrix.cols));
          format(matrix.type).to_float(source + r * row_from, values.data(), matrix.cols);
          format(moved).from_float(values.data(), to, matrix.cols);
        }
      });
      source = made.data();
    }
    std::byte* to = panels ? room.data() : place + first * row_to;
    TRY_VOID(checked(cudaMemcpyAsync(to, source, static_cast<size_t>(rows * row_to), cudaMemcpyHostToDevice, stream),
                     "bringing weights"));
    if (kept.layout == kFp8)
      pack_fp8(stream, room.data(), first, rows, matrix.rows, matrix.cols, place);
    else if (panels)
      pack(stream, moved, room.data(), rows, matrix.cols, place + first / kPanel * panel_bytes(kept.type, matrix.cols));
    TRY_VOID(checked(cudaStreamSynchronize(stream), "bringing weights"));
  }
  return checked(cudaGetLastError(), "packing weights");
}

}  // namespace millrace::cuda
