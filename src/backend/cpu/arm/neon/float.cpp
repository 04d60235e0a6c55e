// Float32 arithmetic: weights of 16 and 32 bits packed in blocks, and every other readable format widened panel by
// panel, with the same order of sums.
#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/float_tile.h"
#include "backend/cpu/arm/neon/f32_linear.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kSegment = 1024;  // inputs widened at a time; a multiple of every format's group

// acc [rows, 8] += rows of `in` from input k on, times one panel.
void multiply_panel(const LinearPart& part, int64_t k, int64_t count, const float* panel, float* acc) {
  int64_t stride = part.in.stride / 4, r = 0;
  for (; r + 8 <= part.rows; r += 8)
    multiply_f32<8, 1>(part.in.row(part.first_row + r) + k, stride, panel, 0, count, acc + r * kPanel);
  if (r + 4 <= part.rows) {
    multiply_f32<4, 1>(part.in.row(part.first_row + r) + k, stride, panel, 0, count, acc + r * kPanel);
    r += 4;
  }
  for (; r < part.rows; ++r)
    multiply_f32<1, 1>(part.in.row(part.first_row + r) + k, stride, panel, 0, count, acc + r * kPanel);
}

// Widens inputs [k, k + count) of eight outputs into a panel.
void widen_panel(const Weight& weight, int64_t output, int64_t k, int64_t count, float* rows, float* panel) {
  const Format& f = format(weight.type);
  int64_t row_bytes = bytes_of(weight.type, weight.cols), inputs = up_to(count, 4);
  for (int64_t n = 0; n < kPanel; ++n) {
    float* row = rows + n * kSegment;
    std::fill_n(row, inputs, 0.0f);
    if (output + n < weight.rows)
      f.to_float(weight.data + (output + n) * row_bytes + bytes_of(weight.type, k), row, count);
  }
  for (int64_t i = 0; i < inputs; ++i) {
    for (int64_t n = 0; n < kPanel; ++n) panel[i * kPanel + n] = rows[n * kSegment + i];
  }
}

void widened_product(const LinearPart& part) {
  float* rows = reinterpret_cast<float*>(part.scratch);  // [8, kSegment]
  float* panel = rows + kPanel * kSegment;               // [kSegment, 8]
  float* acc = panel + kPanel * kSegment;                // [rows, 8]
  for (int64_t output = part.begin; output < part.end; output += kPanel) {
    std::fill_n(acc, part.rows * kPanel, 0.0f);
    for (int64_t k = 0; k < part.weight->cols; k += kSegment) {
      int64_t count = std::min(kSegment, part.weight->cols - k);
      widen_panel(*part.weight, output, k, count, rows, panel);
      multiply_panel(part, k, count, panel, acc);
    }
    write_outputs(part, part.first_row, part.rows, output, std::min<int64_t>(kPanel, part.end - output), acc, kPanel,
                  nullptr);
  }
}

}  // namespace

void add_neon_float(Kernels& kernels) {
  LinearKernel widened;
  widened.outputs_tile = kPanel;
  widened.product = widened_product;
  for (auto& mode : kernels.linear) {
    for (LinearKernel& entry : mode) {
      if (entry.product != nullptr) entry = widened;
    }
    mode[static_cast<size_t>(DType::f32)] = WideLinear<Stored::f32>::kernel();
    mode[static_cast<size_t>(DType::f16)] = WideLinear<Stored::f16_as_is>::kernel();
    mode[static_cast<size_t>(DType::bf16)] = WideLinear<Stored::bf16>::kernel();
  }
  kernels.linear[static_cast<size_t>(Activations::fast)][static_cast<size_t>(DType::f16)] =
      WideLinear<Stored::f16>::kernel();
}

}  // namespace millrace::cpu
