// Float32 arithmetic: float32 weights packed in panels, and every other readable format widened panel by panel, with
// the same order of sums. Half-precision weights in the fast mode.
#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/f16_linear.h"
#include "backend/cpu/arm/float_tile.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kSegment = 1024;  // inputs widened at a time; a multiple of every format's group

int64_t f32_packed_bytes(int64_t rows, int64_t cols) { return up_to(rows, kPanel) * up_to(cols, 4) * 4; }

void f32_pack(const std::byte* in, int64_t rows, int64_t cols, int64_t begin, int64_t end, std::byte* out) {
  int64_t inputs = up_to(cols, 4);
  for (int64_t panel = begin; panel < end; panel += kPanel) {
    std::byte* to = out + panel * inputs * 4;
    for (int64_t n = 0; n < kPanel; ++n) {
      for (int64_t k = 0; k < inputs; ++k) {
        uint32_t value = 0;
        if (panel + n < rows && k < cols) std::memcpy(&value, in + ((panel + n) * cols + k) * 4, 4);
        std::memcpy(to + (k * kPanel + n) * 4, &value, 4);
      }
    }
  }
}

void f32_unpack_row(const Weight& weight, int64_t row, float* out) {
  const float* from =
      reinterpret_cast<const float*>(weight.data) + row / kPanel * kPanel * up_to(weight.cols, 4) + row % kPanel;
  for (int64_t k = 0; k < weight.cols; ++k) out[k] = from[k * kPanel];
}

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

void f32_product(const LinearPart& part) {
  int64_t inputs = up_to(part.weight->cols, 4), output = part.begin;
  const float* weights = reinterpret_cast<const float*>(part.weight->data);
  if (part.rows == 1) {  // four panels at a time: four streams
    for (; output + 4 * kPanel <= part.end; output += 4 * kPanel) {
      float sums[4 * kPanel] = {};
      multiply_f32<1, 4>(part.in.row(part.first_row), 0, weights + output * inputs, kPanel * inputs, part.weight->cols,
                         sums);
      write_outputs(part, part.first_row, 1, output, 4 * kPanel, sums, 4 * kPanel, nullptr);
    }
  }
  float* acc = reinterpret_cast<float*>(part.scratch);  // [rows, 8]
  for (; output < part.end; output += kPanel) {
    std::fill_n(acc, part.rows * kPanel, 0.0f);
    multiply_panel(part, 0, part.weight->cols, weights + output * inputs, acc);
    write_outputs(part, part.first_row, part.rows, output, std::min<int64_t>(kPanel, part.end - output), acc, kPanel,
                  nullptr);
  }
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
  LinearKernel f32 = widened;
  f32.packed_bytes = f32_packed_bytes;
  f32.pack = f32_pack;
  f32.unpack_row = f32_unpack_row;
  f32.product = f32_product;
  for (auto& mode : kernels.linear) {
    for (LinearKernel& entry : mode) {
      if (entry.product != nullptr) entry = widened;
    }
    mode[static_cast<size_t>(DType::f32)] = f32;
  }
  kernels.linear[static_cast<size_t>(Activations::fast)][static_cast<size_t>(DType::f16)] = f16_kernel();
}

}  // namespace millrace::cpu
