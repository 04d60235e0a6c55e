// Products in float32 against any readable format: a segment of a weight row is widened once and multiplied with every
// row of the part. Value k of a row goes to lane k % 16, lanes are summed by halving: one order for every shape of the
// part.
#include <algorithm>

#include "backend/cpu/scalar/scalar.h"
#include "tensor/tensor.h"

namespace millrace::cpu {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kSegment = 4096;  // values widened at a time; a multiple of every format's group and of kLanes
constexpr int64_t kRows = 64;       // accumulated at a time

void multiply(const float* a, const float* b, int64_t count, float* lanes) {
  float sum[kLanes];
  for (int i = 0; i < kLanes; ++i) sum[i] = lanes[i];
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    for (int i = 0; i < kLanes; ++i) sum[i] += a[k + i] * b[k + i];
  }
  for (int i = 0; k + i < count; ++i) sum[i] += a[k + i] * b[k + i];
  for (int i = 0; i < kLanes; ++i) lanes[i] = sum[i];
}

float sum_lanes(float* lanes) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

void product(const LinearPart& part) {
  const Weight& weight = *part.weight;
  const Format& f = format(weight.type);
  float* widened = reinterpret_cast<float*>(part.scratch);
  float* lanes = widened + kSegment;  // [kRows, kLanes]
  int64_t row_bytes = bytes_of(weight.type, weight.cols);
  for (int64_t n = part.begin; n < part.end; ++n) {
    const std::byte* data = weight.data + n * row_bytes;
    for (int64_t first = 0; first < part.rows; first += kRows) {
      int64_t rows = std::min(kRows, part.rows - first);
      std::fill(lanes, lanes + rows * kLanes, 0.0f);
      for (int64_t k = 0; k < weight.cols; k += kSegment) {
        int64_t count = std::min(kSegment, weight.cols - k);
        const float* values = reinterpret_cast<const float*>(data + k * 4);
        if (weight.type != DType::f32) {
          f.to_float(data + bytes_of(weight.type, k), widened, count);
          values = widened;
        }
        for (int64_t r = 0; r < rows; ++r) {
          multiply(part.in.row(part.first_row + first + r) + k, values, count, lanes + r * kLanes);
        }
      }
      float bias = weight.bias != nullptr ? weight.bias[n] : 0.0f;
      for (int64_t r = 0; r < rows; ++r)
        part.out.row(part.first_row + first + r)[n] = sum_lanes(lanes + r * kLanes) + bias;
    }
  }
}

static_assert((kSegment + kRows * kLanes) * sizeof(float) <= kWorkerBytes);

}  // namespace

void add_scalar_linear(Kernels& kernels) {
  for (int type = 0; type < kDTypes; ++type) {
    if (!format(static_cast<DType>(type)).readable()) continue;
    LinearKernel kernel;
    kernel.product = product;
    for (auto& mode : kernels.linear) mode[static_cast<size_t>(type)] = kernel;
  }
}

}  // namespace millrace::cpu
