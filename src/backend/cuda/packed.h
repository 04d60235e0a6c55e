// How the device keeps weights for products, and what a product means there.
//
// Sixteen outputs are a panel; its inputs follow one another in chunks of 64, zeros beyond the last.
//   16-bit numbers: 2 KB a chunk: outputs 0..7, then 8..15; in each, eight inputs of eight outputs (16 bytes an output)
//     are 128 bytes in a row, as both kinds of matrix instructions read them from shared memory.
//   quantised: first the small integers, for every lane of a warp what it puts into its registers (unpack.cuh), then
//     what they are multiplied with, for every 32 inputs (Q6_K: 16).
//
// A product is a chain of additions over the inputs, sixteen at a time, from a float32 zero: mma.sync and wgmma agree
// on every bit of it. Where outputs are few, inputs are cut into segments with a chain each, so that more warps can
// work on one row; segments are added in their order. Quantised numbers become bfloat16 on the way. How many rows are
// multiplied at a time changes who computes what, never this.
#pragma once

#include <cstdint>

#include "base/both.h"
#include "tensor/dtype.h"

namespace millrace::cuda {

// Values of Weight::layout.
enum Layout : uint8_t {
  kRows,    // rows as in the file: tables, and products by any_rows
  kPanels,  // as above
  kCodes    // of fp8_128 and int8_128: rows of codes, then the factors of every 64 rows by 128 inputs
};

inline constexpr int kPanel = 16;  // outputs
inline constexpr int kChunkInputs = 64;
inline constexpr int kChunkBytes = 2048;  // of 16-bit numbers

// What the panels of weights are that a file has in this format: the numbers as they are, where their small integers
// and factors have a place in panels of some format; bfloat16, rounded once, otherwise.
MILLRACE_BOTH constexpr DType panel_type(DType file) {
  switch (file) {
    case DType::f16:
    case DType::q8_0:
    case DType::q4_0:
    case DType::q4_k:
    case DType::q5_k:
    case DType::q6_k:
    case DType::mxfp4:
      return file;
    case DType::q4_1:
      return DType::q4_k;
    case DType::q5_1:
      return DType::q5_k;
    case DType::q5_0:
    case DType::q3_k:
    case DType::nvfp4:
    case DType::fp4_half:
      return DType::q6_k;
    case DType::iq4_nl:
    case DType::iq4_xs:
      return DType::q8_0;
    default:
      return DType::bf16;
  }
}
MILLRACE_BOTH constexpr bool packs_quantised(DType type) {  // of panels
  return type != DType::f16 && type != DType::bf16;
}
// Formats the device reads as the file has them.
MILLRACE_BOTH constexpr bool read_as_filed(DType file) {
  return file == DType::bf16 || panel_type(file) != DType::bf16;
}
MILLRACE_BOTH constexpr int chunk_bytes(DType type) {
  switch (type) {
    case DType::q8_0:
      return 2 * (512 + 32);
    case DType::q4_0:
    case DType::mxfp4:
      return 2 * (256 + 32);
    case DType::q4_k:
      return 2 * (256 + 64);
    case DType::q5_k:
      return 2 * (256 + 64 + 64);
    case DType::q6_k:
      return 2 * (256 + 128 + 64);
    default:
      return kChunkBytes;
  }
}
MILLRACE_BOTH constexpr int64_t chunks_of(int64_t inputs) { return (inputs + kChunkInputs - 1) / kChunkInputs; }
MILLRACE_BOTH constexpr int64_t panels_of(int64_t outputs) { return (outputs + kPanel - 1) / kPanel; }
MILLRACE_BOTH constexpr int64_t panel_bytes(DType type, int64_t cols) { return chunks_of(cols) * chunk_bytes(type); }
constexpr int64_t packed_bytes(DType type, int64_t rows, int64_t cols) {
  return panels_of(rows) * panel_bytes(type, cols);
}

// Chunks of a segment; the last one may have fewer.
constexpr int segment_chunks(int64_t inputs, int segments) {
  return static_cast<int>((chunks_of(inputs) + segments - 1) / segments);
}
// How many segments a product has, by what is multiplied in one go: all outputs that share an input, or one side of a
// gate. Quantised weights need more warps to unpack them. A matter of bits: never of rows, batches or machines.
constexpr int segments_of(DType type, int64_t outputs, int64_t inputs) {
  if (outputs > 6144 || inputs < 1024) return 1;
  int segments = packs_quantised(type) ? 8 : 4;
  while ((segments - 1) * segment_chunks(inputs, segments) >= chunks_of(inputs)) segments /= 2;  // none is empty
  return segments;
}

// The same for experts, whose panels are few: by inputs alone, in chunks. The last segment may be shorter. Eight were
// slower for quantised weights.
inline constexpr int kExpertSegments = 4;
MILLRACE_BOTH constexpr int segment_chunks_of(int chunks, int segments) { return (chunks + segments - 1) / segments; }
MILLRACE_BOTH constexpr int expert_segments(int chunks) {
  int segments = kExpertSegments;
  while (segments > 1 && (segments - 1) * segment_chunks_of(chunks, segments) >= chunks) segments /= 2;
  return chunks < 2 * kExpertSegments ? 1 : segments;
}

// FP8 and INT8: inputs are rounded likewise, with a factor for each row. A product is a chain over 128 inputs (of whole
// numbers: exact), times the weights' factor; these are added in order, in segments where outputs are few; the sum is
// multiplied with the row's factor.
inline constexpr int kFp8Block = 128;  // inputs with one factor
inline constexpr int kFp8Tile = 64;    // outputs
MILLRACE_BOTH constexpr int64_t fp8_rows_of(int64_t outputs) { return (outputs + 127) / 128 * 128; }
constexpr int64_t fp8_bytes(int64_t outputs, int64_t inputs) {
  return fp8_rows_of(outputs) * (inputs + inputs / kFp8Block * int64_t{sizeof(float)});
}
constexpr int fp8_segment_blocks(int64_t inputs, int segments) {
  return static_cast<int>((inputs / kFp8Block + segments - 1) / segments);
}
constexpr int fp8_segments_of(int64_t outputs, int64_t inputs) {
  if (outputs > 6144 || inputs < 1024) return 1;
  int segments = 4;
  while ((segments - 1) * fp8_segment_blocks(inputs, segments) >= inputs / kFp8Block) segments /= 2;
  return segments;
}

// Where 16-bit number (row, col) lies, counted in numbers.
MILLRACE_BOTH constexpr int64_t packed_place(int64_t row, int64_t col, int64_t cols) {
  return (row / kPanel * chunks_of(cols) + col / kChunkInputs) * (kChunkBytes / 2) + row % kPanel / 8 * 512 +
         col % kChunkInputs / 8 * 64 + row % 8 * 8 + col % 8;
}

}  // namespace millrace::cuda
