// Products in float32: weights of float32, float16 or bfloat16 packed in panels of sixteen outputs side by side for
// every input, so that each input of a row is multiplied into sixteen outputs at once; every other readable format is
// widened panel by panel. Every output has one accumulator and takes its inputs in ascending order: the bits cannot
// depend on how many rows or panels are in flight, nor on the format the numbers came from.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/x86/simd.h"

namespace millrace::cpu {
namespace {

constexpr int kPanel = kLanes;
constexpr int64_t kSegment = 512;  // inputs at a time: panels of them stay in the first cache while rows pass by
#ifdef __AVX512F__
constexpr int kMostRows = 8, kWidePanels = 2;
#else
constexpr int kMostRows = 4, kWidePanels = 1;
#endif

struct F32Panel {
  static constexpr int64_t kBytes = 4;
  static constexpr DType kType = DType::f32;
  static Floats get(const std::byte* at) { return load(reinterpret_cast<const float*>(at)); }
};
struct F16Panel {
  static constexpr int64_t kBytes = 2;
  static constexpr DType kType = DType::f16;
  static Floats get(const std::byte* at) { return load_f16(at); }
};
struct Bf16Panel {
  static constexpr int64_t kBytes = 2;
  static constexpr DType kType = DType::bf16;
  static Floats get(const std::byte* at) { return load_bf16(at); }
};

// acc [Rows, Panels * 16] += a [Rows, count] x w.
template <class S, int Rows, int Panels>
inline void multiply(const float* a, int64_t a_stride, const std::byte* w, int64_t panel_bytes, int64_t count,
                     float* acc) {
  Floats sum[Rows][Panels];
#pragma GCC unroll 16
  for (int i = 0; i < Rows * Panels; ++i) sum[i / Panels][i % Panels] = load(acc + i * kPanel);
  for (int64_t k = 0; k < count; ++k, w += kPanel * S::kBytes) {
    Floats weights[Panels];
#pragma GCC unroll 4
    for (int n = 0; n < Panels; ++n) weights[n] = S::get(w + n * panel_bytes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      Floats x = splat(a[r * a_stride + k]);
#pragma GCC unroll 4
      for (int n = 0; n < Panels; ++n) sum[r][n] = fma(weights[n], x, sum[r][n]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows * Panels; ++i) store(acc + i * kPanel, sum[i / Panels][i % Panels]);
}

// acc [rows, Panels * 16] += rows of `in` from input k on, times panels.
template <class S, int Panels>
inline void multiply_rows(const LinearPart& part, int64_t k, int64_t count, const std::byte* w, int64_t panel_bytes,
                          float* acc) {
  int64_t stride = part.in.stride / 4, r = 0;
  auto some = [&](auto rows) {
    constexpr int kRows = decltype(rows)::value;
    for (; r + kRows <= part.rows; r += kRows) {
      multiply<S, kRows, Panels>(part.in.row(part.first_row + r) + k, stride, w, panel_bytes, count,
                                 acc + r * Panels * kPanel);
    }
  };
  // What is left over is one product more, so that weights are read no more often than they must be.
  const auto all = [&]<int... kFewer>(std::integer_sequence<int, kFewer...>) {
    (some(std::integral_constant<int, kMostRows - kFewer>()), ...);
  };
  all(std::make_integer_sequence<int, kMostRows>());
}

// Writes sums [rows, stride] with the bias to where outputs exist.
inline void write_outputs(const LinearPart& part, int64_t row, int64_t rows, int64_t output, const float* sums,
                          int64_t stride) {
  const float* bias = part.weight->bias;
  int64_t outputs = least(stride, part.end - output);
  for (int64_t r = 0; r < rows; ++r) {
    float* out = part.out.row(row + r) + output;
    for (int64_t n = 0; n < outputs; n += kLanes) {
      Floats x = load(sums + r * stride + n);
      if (bias != nullptr) x = x + load_some(bias + output + n, outputs - n);
      store_some(out + n, x, outputs - n);
    }
  }
}

// ---- packed weights
// --------------------------------------------------------------------------------------------------------------

template <class S>
struct FloatLinear {
  static int64_t packed_bytes(int64_t rows, int64_t cols) { return up_to(rows, kPanel) * cols * S::kBytes; }

  static void pack(const std::byte* in, int64_t rows, int64_t cols, int64_t begin, int64_t end, std::byte* out) {
    for (int64_t panel = begin; panel < end; panel += kPanel) {
      std::byte* to = out + panel * cols * S::kBytes;
      for (int64_t n = 0; n < kPanel; ++n) {
        const std::byte* from = in + (panel + n) * cols * S::kBytes;
        for (int64_t k = 0; k < cols; ++k) {
          std::byte* place = to + (k * kPanel + n) * S::kBytes;
          if (panel + n < rows) {
            std::memcpy(place, from + k * S::kBytes, S::kBytes);
          } else {
            std::memset(place, 0, S::kBytes);
          }
        }
      }
    }
  }

  static void unpack_row(const Weight& weight, int64_t row, float* out) {
    const std::byte* from = weight.data + (row / kPanel * kPanel * weight.cols + row % kPanel) * S::kBytes;
    for (int64_t k = 0; k < weight.cols; ++k) format(S::kType).to_float(from + k * kPanel * S::kBytes, out + k, 1);
  }

  template <int Panels>
  static void panels(const LinearPart& part, int64_t output) {
    int64_t cols = part.weight->cols, panel_bytes = cols * kPanel * S::kBytes;
    const std::byte* w = part.weight->data + output * cols * S::kBytes;
    float* acc = reinterpret_cast<float*>(part.scratch);  // [rows, Panels * 16]
    std::memset(acc, 0, static_cast<size_t>(part.rows * Panels * kPanel) * 4);
    int64_t segment = part.rows == 1 ? cols : kSegment;
    for (int64_t k = 0; k < cols; k += segment) {
      multiply_rows<S, Panels>(part, k, least(segment, cols - k), w + k * kPanel * S::kBytes, panel_bytes, acc);
    }
    write_outputs(part, part.first_row, part.rows, output, acc, Panels * kPanel);
  }

  static void product(const LinearPart& part) {
    int64_t output = part.begin;
    if (part.rows == 1) {  // several streams
      for (; output + 3 * kPanel < part.end; output += 4 * kPanel) panels<4>(part, output);
    }
    for (; output + (kWidePanels - 1) * kPanel < part.end; output += kWidePanels * kPanel)
      panels<kWidePanels>(part, output);
    for (; output < part.end; output += kPanel) panels<1>(part, output);
  }

  static LinearKernel kernel() {
    LinearKernel kernel;
    kernel.outputs_tile = kPanel;
    kernel.packed_bytes = packed_bytes;
    kernel.pack = pack;
    kernel.unpack_row = unpack_row;
    kernel.product = product;
    return kernel;
  }
};

// ---- any format, widened
// ---------------------------------------------------------------------------------------------------------

constexpr int64_t kWidened = 1024;  // inputs at a time; a multiple of every format's group

// Inputs [k, k + count) of sixteen outputs as a panel of float32.
inline void widen_panel(const Weight& weight, int64_t output, int64_t k, int64_t count, float* row, float* panel) {
  const Format& f = format(weight.type);
  int64_t row_bytes = bytes_of(weight.type, weight.cols);
  for (int64_t n = 0; n < kPanel; ++n) {
    bool exists = output + n < weight.rows;
    if (exists) f.to_float(weight.data + (output + n) * row_bytes + bytes_of(weight.type, k), row, count);
    for (int64_t i = 0; i < count; ++i) panel[i * kPanel + n] = exists ? row[i] : 0.0f;
  }
}

inline void widened_product(const LinearPart& part) {
  float* row = reinterpret_cast<float*>(part.scratch);
  float* panel = row + kWidened;           // [kWidened, 16]
  float* acc = panel + kWidened * kPanel;  // [rows, 16]
  for (int64_t output = part.begin; output < part.end; output += kPanel) {
    std::memset(acc, 0, static_cast<size_t>(part.rows * kPanel) * 4);
    for (int64_t k = 0; k < part.weight->cols; k += kWidened) {
      int64_t count = least(kWidened, part.weight->cols - k);
      widen_panel(*part.weight, output, k, count, row, panel);
      multiply_rows<F32Panel, 1>(part, k, count, reinterpret_cast<const std::byte*>(panel), 0, acc);
    }
    write_outputs(part, part.first_row, part.rows, output, acc, kPanel);
  }
}

inline void add_float_entries(Kernels& kernels) {
  LinearKernel widened;
  widened.outputs_tile = kPanel;
  widened.product = widened_product;
  for (auto& mode : kernels.linear) {
    for (LinearKernel& entry : mode) {
      if (entry.product != nullptr) entry = widened;
    }
    mode[static_cast<size_t>(DType::f32)] = FloatLinear<F32Panel>::kernel();
    mode[static_cast<size_t>(DType::f16)] = FloatLinear<F16Panel>::kernel();
    mode[static_cast<size_t>(DType::bf16)] = FloatLinear<Bf16Panel>::kernel();
  }
}

}  // namespace
}  // namespace millrace::cpu
