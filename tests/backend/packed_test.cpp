// The layout of weights on a GPU, as far as it can be checked without one: every number has a place of its own, and all
// places lie within what the ledger is told.
#include "backend/cuda/packed.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace millrace::cuda {
namespace {

TEST(Packed, EveryNumberHasItsOwnPlace) {
  struct Shape {
    int64_t rows, cols;
  };
  for (const Shape shape : {Shape{16, 64}, Shape{17, 72}, Shape{50, 96}, Shape{128, 576}}) {
    const int64_t bytes = packed_bytes(DType::bf16, shape.rows, shape.cols);
    std::vector<int> taken(static_cast<size_t>(bytes / 2));
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t col = 0; col < shape.cols; ++col) {
        const int64_t place = packed_place(row, col, shape.cols);
        ASSERT_GE(place, 0);
        ASSERT_LT(place, bytes / 2) << row << ", " << col << " of " << shape.rows << " x " << shape.cols;
        EXPECT_EQ(taken[static_cast<size_t>(place)]++, 0) << row << ", " << col;
      }
    }
  }
}

// Matrix instructions read eight inputs of eight outputs from 128 bytes in a row.
TEST(Packed, EightByEightLieTogether) {
  for (int64_t row = 0; row < 8; ++row) {
    for (int64_t col = 0; col < 8; ++col) {
      EXPECT_EQ(packed_place(row, col, 128), row * 8 + col);
      EXPECT_EQ(packed_place(row, 8 + col, 128), 64 + row * 8 + col);
      EXPECT_EQ(packed_place(8 + row, col, 128), 512 + row * 8 + col);
      EXPECT_EQ(packed_place(row, 64 + col, 128), 1024 + row * 8 + col);
    }
  }
}

// Bits a weight: what decides how fast one sequence can be.
TEST(Packed, QuantisedWeightsTakeFewBytes) {
  const int64_t numbers = 4096 * 4096;
  EXPECT_EQ(packed_bytes(DType::bf16, 4096, 4096) * 8 / numbers, 16);
  EXPECT_DOUBLE_EQ(static_cast<double>(packed_bytes(DType::q8_0, 4096, 4096)) * 8 / numbers, 8.5);
  EXPECT_DOUBLE_EQ(static_cast<double>(packed_bytes(DType::q4_0, 4096, 4096)) * 8 / numbers, 4.5);
  EXPECT_DOUBLE_EQ(static_cast<double>(packed_bytes(DType::q4_k, 4096, 4096)) * 8 / numbers, 5);
  EXPECT_DOUBLE_EQ(static_cast<double>(packed_bytes(DType::q6_k, 4096, 4096)) * 8 / numbers, 7);
  EXPECT_DOUBLE_EQ(static_cast<double>(packed_bytes(DType::q5_k, 4096, 4096)) * 8 / numbers, 6);
  EXPECT_DOUBLE_EQ(static_cast<double>(packed_bytes(DType::mxfp4, 4096, 4096)) * 8 / numbers, 4.5);
  EXPECT_EQ(packed_bytes(DType::q8_0, 1, 32), panel_bytes(DType::q8_0, 64)) << "padded to a panel and a chunk";
}

// The format most files have: an 8B in Q4_K_M, whose attn_v and ffn_down are Q6_K in half of the layers, and its head.
// The table of tokens stays as the file has it.
TEST(Packed, FilesOfQ4KMGrowByLessThanATenth) {
  int64_t file = bytes_of(DType::q4_k, int64_t{128256} * 4096), device = file;
  auto add = [&](DType type, int64_t rows, int64_t cols, int64_t count) {
    file += count * bytes_of(type, rows * cols);
    device += count * packed_bytes(panel_type(type), rows, cols);
  };
  add(DType::q6_k, 128256, 4096, 1);
  add(DType::q4_k, 4096, 4096, 64);       // attn_q, attn_output
  add(DType::q4_k, 1024, 4096, 32 + 16);  // attn_k, half of attn_v
  add(DType::q6_k, 1024, 4096, 16);
  add(DType::q4_k, 14336, 4096, 64);  // ffn_gate, ffn_up
  add(DType::q4_k, 4096, 14336, 16);  // half of ffn_down
  add(DType::q6_k, 4096, 14336, 16);
  EXPECT_NEAR(static_cast<double>(file), 4.91e9, 0.02e9) << "what such files have";
  EXPECT_LE(static_cast<double>(device), 1.1 * static_cast<double>(file)) << device << " of " << file;
}

// Formats without panels of their own lie in those of another, or become bfloat16.
TEST(Packed, EveryFormatHasPanels) {
  for (const auto& [file, panel] : {std::pair{DType::q4_1, DType::q4_k},
                                    {DType::q5_1, DType::q5_k},
                                    {DType::q5_0, DType::q6_k},
                                    {DType::q3_k, DType::q6_k},
                                    {DType::nvfp4, DType::q6_k},
                                    {DType::fp4_half, DType::q6_k},
                                    {DType::iq4_nl, DType::q8_0},
                                    {DType::iq4_xs, DType::q8_0},
                                    {DType::q2_k, DType::bf16},
                                    {DType::iq2_xxs, DType::bf16},
                                    {DType::f8_e4m3, DType::bf16}}) {
    EXPECT_EQ(panel_type(file), panel);
    EXPECT_EQ(read_as_filed(file), panel != DType::bf16);
    EXPECT_EQ(panel_type(panel), panel) << "panels are of a format that has its own";
  }
}

}  // namespace
}  // namespace millrace::cuda
