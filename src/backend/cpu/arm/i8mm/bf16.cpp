// Products with bfloat16 weights. Rows are rounded to bfloat16 (as such models were trained) and multiplied with
// BFMMLA, which takes a pair of rows, a pair of outputs and four inputs at a time; every pair of sums has one
// accumulator and takes its inputs in ascending order. Packed: per panel of eight outputs [steps of 4 inputs][4
// pairs][2][4]. Prepared: [segments][tiles of eight rows][steps of the segment][pairs][2][4], in the order a panel
// meets them, with as many pairs as there are rows, rounded up to 1, 2 or 4.
#include <algorithm>
#include <bit>

#include "backend/cpu/arm/arm.h"
#include "backend/cpu/arm/simd.h"

namespace millrace::cpu {
namespace {

constexpr int kPanel = 8, kPairs = 4;
constexpr int64_t kStep = 4;  // inputs
constexpr int64_t kTileRows = 8;
constexpr int64_t kSegment = 256;  // steps: 16 KiB of a panel, which stays in the first cache while tiles pass by
constexpr int64_t kStepBytes = kPairs * 16;

int64_t up_to(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
int64_t steps_of(int64_t cols) { return (cols + kStep - 1) / kStep; }

int64_t packed_bytes(int64_t rows, int64_t cols) { return up_to(rows, kPanel) / kPanel * steps_of(cols) * kStepBytes; }

void pack(const std::byte* in, int64_t rows, int64_t cols, int64_t begin, int64_t end, std::byte* out) {
  int64_t steps = steps_of(cols);
  for (int64_t panel = begin; panel < end; panel += kPanel) {
    std::byte* to = out + panel / kPanel * steps * kStepBytes;
    for (int64_t n = 0; n < kPanel; ++n) {
      const std::byte* row = in + (panel + n) * cols * 2;
      for (int64_t s = 0; s < steps; ++s) {
        std::byte* place = to + s * kStepBytes + n * 8;
        int64_t count = panel + n < rows ? std::min(kStep, cols - s * kStep) : 0;
        std::memset(place, 0, 8);
        std::memcpy(place, row + s * 8, static_cast<size_t>(count) * 2);
      }
    }
  }
}

void unpack_row(const Weight& weight, int64_t row, float* out) {
  int64_t steps = steps_of(weight.cols);
  const std::byte* from = weight.data + row / kPanel * steps * kStepBytes + row % kPanel * 8;
  for (int64_t s = 0; s < steps; ++s) {
    format(DType::bf16).to_float(from + s * kStepBytes, out + s * kStep, std::min(kStep, weight.cols - s * kStep));
  }
}

int64_t row_pairs(int64_t rows) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min(rows, kTileRows) + 1) / 2));
}
int64_t prepared_bytes(int64_t rows, int64_t cols) { return up_to(rows, kTileRows) * steps_of(cols) * 8; }

// Where a tile of prepared rows has the segment that begins with `step`, and how many steps there are in it.
struct Segment {
  Segment(int64_t rows, int64_t cols, int64_t tile, int64_t step)
      : count(std::min(kSegment, steps_of(cols) - step)),
        offset((step * (up_to(rows, kTileRows) / kTileRows) + tile * count) * kTileRows * 8) {}
  int64_t count, offset;
};

void prepare(Tensor in, int64_t begin, int64_t end, std::byte* out) {
  int64_t pairs = row_pairs(in.rows - begin), steps = steps_of(in.cols);
  for (int64_t first = 0; first < steps; first += kSegment) {
    const Segment segment(in.rows, in.cols, begin / kTileRows, first);
    for (int64_t r = 0; r < pairs * 2; ++r) {
      std::byte* to = out + segment.offset + r * 8;
      for (int64_t s = first; s < first + segment.count; ++s, to += pairs * 16) {
        bfloat16x4_t four = vreinterpret_bf16_u16(vdup_n_u16(0));
        if (begin + r < end) four = vcvt_bf16_f32(load_some(in.row(begin + r) + s * kStep, in.cols - s * kStep));
        vst1_bf16(reinterpret_cast<bfloat16_t*>(to), four);
      }
    }
  }
}

// sums [RowPairs][Panels * 4 pairs][4] += rows x panels, over `steps`; asks the memory for what lies `ahead` bytes on,
// if that is not 0.
template <int RowPairs, int Panels, bool asks>
void multiply_steps(const std::byte* rows, const std::byte* packed, int64_t panel_bytes, int64_t steps, int64_t ahead,
                    float* sums) {
  constexpr int kOutputs = Panels * kPairs;
  float32x4_t total[RowPairs][kOutputs];
#pragma GCC unroll 16
  for (int i = 0; i < RowPairs * kOutputs; ++i) total[i / kOutputs][i % kOutputs] = vld1q_f32(sums + 4 * i);
  for (int64_t s = 0; s < steps; ++s, rows += RowPairs * 16, packed += kStepBytes) {
#pragma GCC unroll 4
    for (int n = 0; asks && n < Panels; ++n) __builtin_prefetch(packed + n * panel_bytes + ahead, 0, 2);
    bfloat16x8_t a[RowPairs];
#pragma GCC unroll 4
    for (int m = 0; m < RowPairs; ++m) a[m] = vld1q_bf16(reinterpret_cast<const bfloat16_t*>(rows + m * 16));
#pragma GCC unroll 16
    for (int n = 0; n < kOutputs; ++n) {
      const std::byte* at = packed + n / kPairs * panel_bytes + n % kPairs * 16;
      bfloat16x8_t w = vld1q_bf16(reinterpret_cast<const bfloat16_t*>(at));
#pragma GCC unroll 4
      for (int m = 0; m < RowPairs; ++m) total[m][n] = vbfmmlaq_f32(total[m][n], a[m], w);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < RowPairs * kOutputs; ++i) vst1q_f32(sums + 4 * i, total[i / kOutputs][i % kOutputs]);
}

template <int RowPairs, int Panels>
void multiply(const std::byte* rows, const std::byte* packed, int64_t panel_bytes, int64_t steps, int64_t ahead,
              float* sums) {
  ahead != 0 ? multiply_steps<RowPairs, Panels, true>(rows, packed, panel_bytes, steps, ahead, sums)
             : multiply_steps<RowPairs, Panels, false>(rows, packed, panel_bytes, steps, 0, sums);
}

// From panels at hand to those after them, or 0 if there are none: memory that does not exist must not be asked for.
int64_t to_next(const LinearPart& part, int64_t output, int64_t panels, int64_t panel_bytes) {
  bool exist = output + (2 * panels - 1) * kPanel < part.weight->rows;
  return exist ? panels * panel_bytes : 0;
}

// Writes sums [pairs of rows][pairs][4] to the rows and outputs that exist.
void write_sums(const LinearPart& part, const float* sums, int64_t pairs, int64_t row, int64_t rows, int64_t output) {
  const float* bias = part.weight->bias;
  int64_t outputs = std::min(pairs * 2, part.end - output);
  for (int64_t r = 0; r < rows; ++r) {
    float* out = part.out.row(row + r) + output;
    const float* from = sums + r / 2 * pairs * 4 + r % 2 * 2;
    for (int64_t n = 0; n < outputs; ++n) {
      float value = from[n / 2 * 4 + n % 2];
      out[n] = bias != nullptr ? value + bias[output + n] : value;
    }
  }
}

// Few rows: several panels at once, straight through all inputs. Four panels are streams enough for one pair of rows.
template <int RowPairs, int Panels>
void few_rows_panels(const LinearPart& part, int64_t row, int64_t rows, int64_t output) {
  const int64_t steps = steps_of(part.weight->cols), panel_bytes = steps * kStepBytes;
  const int64_t ahead = RowPairs == 1 ? 0 : to_next(part, output, Panels, panel_bytes);
  const std::byte* panels = part.weight->data + output / kPanel * panel_bytes;
  float sums[RowPairs * Panels * kPairs * 4] = {};
  for (int64_t s = 0; s < steps; s += kSegment) {
    const Segment segment(part.prepared_rows, part.weight->cols, row / kTileRows, s);
    multiply<RowPairs, Panels>(part.prepared + segment.offset, panels + s * kStepBytes, panel_bytes, segment.count,
                               ahead, sums);
  }
  write_sums(part, sums, Panels * kPairs, row, rows, output);
}

template <int RowPairs>
void few_rows(const LinearPart& part, int64_t row, int64_t rows) {
  constexpr int kPanels = RowPairs == 1 ? 4 : 2;
  int64_t output = part.begin;
  for (; output + (kPanels - 1) * kPanel < part.end; output += kPanels * kPanel)
    few_rows_panels<RowPairs, kPanels>(part, row, rows, output);
  for (; output < part.end; output += kPanel) few_rows_panels<RowPairs, 1>(part, row, rows, output);
}

// Whole tiles: a segment of a panel meets them all before the next.
void whole_tiles(const LinearPart& part, int64_t tiles) {
  constexpr int64_t kSums = kTileRows * kPanel;
  int64_t steps = steps_of(part.weight->cols), panel_bytes = steps * kStepBytes;
  float* sums = reinterpret_cast<float*>(part.scratch);  // [tiles, kSums]
  for (int64_t output = part.begin; output < part.end; output += kPanel) {
    const std::byte* panel = part.weight->data + output / kPanel * panel_bytes;
    const int64_t ahead = to_next(part, output, 1, panel_bytes);
    std::fill_n(sums, tiles * kSums, 0.0f);
    for (int64_t s = 0; s < steps; s += kSegment) {
      for (int64_t t = 0; t < tiles; ++t) {
        const Segment segment(part.prepared_rows, part.weight->cols, part.first_row / kTileRows + t, s);
        multiply<4, 1>(part.prepared + segment.offset, panel + s * kStepBytes, panel_bytes, segment.count,
                       t == 0 ? ahead : 0, sums + t * kSums);
      }
    }
    for (int64_t t = 0; t < tiles; ++t) {
      int64_t row = t * kTileRows;
      write_sums(part, sums + t * kSums, kPairs, part.first_row + row, std::min(kTileRows, part.rows - row), output);
    }
  }
}

// The last tile of all rows may have fewer pairs than the others.
void product(const LinearPart& part) {
  int64_t whole = 0, last = part.first_row + part.rows;
  while (whole * kTileRows < part.rows && row_pairs(part.prepared_rows - part.first_row - whole * kTileRows) == 4)
    ++whole;
  if (whole > 0) whole_tiles(part, whole);
  int64_t row = part.first_row + whole * kTileRows;
  if (row >= last) return;
  row_pairs(part.prepared_rows - row) == 1 ? few_rows<1>(part, row, last - row) : few_rows<2>(part, row, last - row);
}

}  // namespace

void add_i8mm_bf16(Kernels& kernels) {
  LinearKernel kernel;
  kernel.outputs_tile = kPanel;
  kernel.rows_tile = kTileRows;
  kernel.packed_bytes = packed_bytes;
  kernel.pack = pack;
  kernel.unpack_row = unpack_row;
  kernel.prepared_bytes = prepared_bytes;
  kernel.prepare = prepare;
  kernel.product = product;
  kernels.linear[static_cast<size_t>(Activations::fast)][static_cast<size_t>(DType::bf16)] = kernel;
}

}  // namespace millrace::cpu
