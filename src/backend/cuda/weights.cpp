#include "backend/cuda/weights.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/kernels.h"
#include "backend/cuda/packed.h"

namespace millrace::cuda {

Kept kept_as(DType type, int64_t rows, int64_t cols, WeightUse use, const Family& family, bool rounds_inputs) {
  const bool coded = type == DType::int8_128 || (type == DType::fp8_128 && family.fp8_rows != nullptr);
  if (coded && rounds_inputs && use == WeightUse::linear) return {type, kCodes, fp8_bytes(rows, cols)};
  if (type == DType::f32) return {type, kRows, bytes_of(type, rows * cols)};
  if (use == WeightUse::table || cols % 8 != 0) {
    const DType kept = read_as_filed(type) ? type : DType::bf16;
    return {kept, kRows, bytes_of(kept, rows * cols)};
  }
  return {panel_type(type), kPanels, packed_bytes(panel_type(type), rows, cols)};
}

Result<void> WayThere::open() {
  for (Half& half : halves_) {
    if (half.host != nullptr) continue;
    void *host = nullptr, *device = nullptr;
    TRY_VOID(checked(cudaMallocHost(&host, kHalfBytes), "the host's room for loading"));
    half.host = static_cast<std::byte*>(host);
    TRY_VOID(checked(cudaMalloc(&device, kHalfBytes), "room for loading"));
    half.device = static_cast<std::byte*>(device);
    TRY_VOID(checked(cudaEventCreateWithFlags(&half.over, cudaEventDisableTiming), "an event"));
  }
  return {};
}

void WayThere::close() {
  for (Half& half : halves_) {
    if (half.over != nullptr) cudaEventSynchronize(half.over), cudaEventDestroy(half.over);
    if (half.device != nullptr) cudaFree(half.device);
    if (half.host != nullptr) cudaFreeHost(half.host);
    half = {};
  }
}

Result<void> WayThere::bring(const HostMatrix& matrix, const Kept& kept, std::byte* place, Team& team,
                             cudaStream_t stream) {
  const bool panels = kept.layout != kRows, as_is = matrix.type == kept.type || (panels && read_as_filed(matrix.type));
  const DType moved = as_is ? matrix.type : kept.type;  // rows on their way
  const int64_t row_from = bytes_of(matrix.type, matrix.cols), row_to = bytes_of(moved, matrix.cols);
  const int64_t most = kHalfBytes / row_to;
  if (most < (panels ? kPanel : 1))
    return error(Code::unsupported, "rows of {} bytes are longer than what can be brought to the GPU at once ({})",
                 row_to, kHalfBytes);
  const int64_t step = panels ? most / kPanel * kPanel : most;
  for (int64_t first = 0; first < matrix.rows; first += step) {
    const int64_t rows = std::min(step, matrix.rows - first), bytes = rows * row_to;
    const std::byte* source = matrix.bytes.data() + first * row_from;
    Half& half = halves_[next_];
    next_ = 1 - next_;
    TRY_VOID(checked(cudaEventSynchronize(half.over), "bringing weights"));
    if (as_is) {
      constexpr int64_t kBytesATask = int64_t{1} << 20;
      team.each((bytes + kBytesATask - 1) / kBytesATask, [&](int64_t task, int) {
        const int64_t at = task * kBytesATask;
        std::memcpy(half.host + at, source + at, static_cast<size_t>(std::min(kBytesATask, bytes - at)));
      });
    } else {
      constexpr int64_t kRowsATask = 32;
      team.each((rows + kRowsATask - 1) / kRowsATask, [&](int64_t task, int) {
        std::vector<float> values(static_cast<size_t>(matrix.cols));
        for (int64_t r = task * kRowsATask; r < std::min(rows, (task + 1) * kRowsATask); ++r) {
          format(matrix.type).to_float(source + r * row_from, values.data(), matrix.cols);
          format(moved).from_float(values.data(), half.host + r * row_to, matrix.cols);
        }
      });
    }
    std::byte* to = panels ? half.device : place + first * row_to;
    TRY_VOID(checked(cudaMemcpyAsync(to, half.host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream),
                     "bringing weights"));
    if (kept.layout == kCodes)
      pack_fp8(stream, half.device, first, rows, matrix.rows, matrix.cols, place);
    else if (panels)
      pack(stream, moved, half.device, rows, matrix.cols, place + first / kPanel * panel_bytes(kept.type, matrix.cols));
    TRY_VOID(checked(cudaEventRecord(half.over, stream), "bringing weights"));
  }
  return checked(cudaGetLastError(), "packing weights");
}

}  // namespace millrace::cuda
