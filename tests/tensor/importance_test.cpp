// Scales by importance: what matters keeps its value, codes and grids agree with the formats' own reading.
#include "tensor/importance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tensor/tensor.h"

namespace millrace {
namespace {

std::vector<DType> formats_with_scales() {
  std::vector<DType> out;
  for (int i = 0; i < kDTypes; ++i) {
    if (from_important(static_cast<DType>(i)) != nullptr) out.push_back(static_cast<DType>(i));
  }
  return out;
}

// Numbers like weights: sums of a few uniform ones.
std::vector<float> weights(size_t count, uint64_t seed) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (uint32_t d = 0; d < 4; ++d)
      sum += uniform({.seed = seed, .choice = 0, .position = static_cast<uint32_t>(i), .draw = d}) - 0.5;
    out[i] = static_cast<float>(sum * 0.1);
  }
  return out;
}

std::vector<float> through(DType type, const std::vector<float>& in, const float* importance) {
  const auto count = static_cast<int64_t>(in.size());
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(type, count)));
  from_important(type)(in.data(), importance, bytes.data(), count);
  std::vector<float> out(in.size());
  format(type).to_float(bytes.data(), out.data(), count);
  return out;
}

class ImportanceTest : public ::testing::TestWithParam<DType> {};

TEST_P(ImportanceTest, AreThoseThatCanBeWritten) {
  EXPECT_NE(format(GetParam()).from_float, nullptr);
  EXPECT_NE(grid_format(GetParam()).grid, nullptr);
}

TEST_P(ImportanceTest, WithoutAnyAreTheFormatsOwnCodes) {
  const std::vector<float> in = weights(1024, 3), zeros(1024), bad(1024, std::nanf(""));
  std::vector<float> plain(in.size());
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(GetParam(), 1024)));
  format(GetParam()).from_float(in.data(), bytes.data(), 1024);
  format(GetParam()).to_float(bytes.data(), plain.data(), 1024);
  EXPECT_EQ(through(GetParam(), in, nullptr), plain);
  EXPECT_EQ(through(GetParam(), in, zeros.data()), plain);
  EXPECT_EQ(through(GetParam(), in, bad.data()), plain);
}

// One column in 32 is read a thousand times as strongly as the others: its error must fall, and the sum that counts.
TEST_P(ImportanceTest, KeepAPlantedColumn) {
  const std::vector<float> in = weights(8192, 7);
  std::vector<float> importance(in.size(), 1.0f);
  for (size_t i = 5; i < importance.size(); i += 32) importance[i] = 1000.0f;
  const std::vector<float> plain = through(GetParam(), in, nullptr), kept = through(GetParam(), in, importance.data());
  double lost_plain = 0, lost_kept = 0, all_plain = 0, all_kept = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    const double a = std::pow(static_cast<double>(plain[i] - in[i]), 2),
                 b = std::pow(static_cast<double>(kept[i] - in[i]), 2);
    all_plain += static_cast<double>(importance[i]) * a;
    all_kept += static_cast<double>(importance[i]) * b;
    if (importance[i] > 1) lost_plain += a, lost_kept += b;
  }
  // MXFP4 has powers of two to choose from and nothing between.
  const double share = GetParam() == DType::mxfp4 ? 0.9 : 0.5;
  EXPECT_LT(lost_kept, share * lost_plain);
  EXPECT_LT(all_kept, share * all_plain);
}

// What errors of a group count, in double: importance * sqrt(2 * mean square + w^2).
std::vector<double> counts_of(const float* in, const float* importance, int count) {
  std::vector<double> out;
  double squares = 0;
  for (int i = 0; i < count; ++i) squares += std::pow(static_cast<double>(in[i]), 2);
  for (int i = 0; i < count; ++i)
    out.push_back(static_cast<double>(importance[i]) *
                  std::sqrt(2 * squares / count + std::pow(static_cast<double>(in[i]), 2)));
  return out;
}

// What one step for all numbers of a group loses at least: every step of a fine net, in double.
double least_loss(const Grid& grid, const float* in, const std::vector<double>& counts) {
  const auto count = static_cast<int>(counts.size());
  double widest = 0, least = INFINITY;
  for (int i = 0; i < count; ++i) widest = std::max(widest, std::abs(static_cast<double>(in[i])));
  for (int k = -4000; k <= 4000; ++k) {
    const double step = 1.5 * widest * k / 4000 / (grid.levels != nullptr ? 127 : grid.high);
    double loss = 0;
    for (int i = 0; i < count && loss < least; ++i) {
      double nearest = INFINITY;
      for (int q = grid.low; q <= grid.high; ++q) {
        const double level = grid.levels != nullptr ? grid.levels[q] : q;
        nearest = std::min(nearest, std::abs(level * step - static_cast<double>(in[i])));
      }
      loss += counts[static_cast<size_t>(i)] * nearest * nearest;
    }
    least = std::min(least, loss);
  }
  return least;
}

TEST(Importance, StepsAreNearlyTheBestThereAre) {
  constexpr int kGroup = 32, kGroups = 16;
  const std::vector<float> in = weights(kGroup * kGroups, 23);
  std::vector<float> importance(in.size());
  for (size_t i = 0; i < importance.size(); ++i)
    importance[i] = static_cast<float>(std::exp(4 * uniform({.seed = 5, .position = static_cast<uint32_t>(i)})));
  for (const DType type : {DType::q4_0, DType::q5_0, DType::iq4_nl}) {
    ASSERT_EQ(format(type).group, kGroup);
    const std::vector<float> out = through(type, in, importance.data()), plain = through(type, in, nullptr);
    double lost = 0, least = 0, lost_plain = 0;
    for (size_t first = 0; first < in.size(); first += kGroup) {
      std::vector<std::byte> bytes(static_cast<size_t>(format(type).group_bytes));
      from_important(type)(&in[first], nullptr, bytes.data(), kGroup);
      Grid grid;
      grid_format(type).grid(bytes.data(), grid);
      const std::vector<double> counts = counts_of(&in[first], &importance[first], kGroup);
      least += least_loss(grid, &in[first], counts);
      for (size_t i = 0; i < kGroup; ++i) {
        lost += counts[i] * std::pow(static_cast<double>(out[first + i] - in[first + i]), 2);
        lost_plain += counts[i] * std::pow(static_cast<double>(plain[first + i] - in[first + i]), 2);
      }
    }
    EXPECT_GT(lost, 0.999 * least) << format(type).name;  // the net is as fine as it should be
    EXPECT_LT(lost, 1.03 * least) << format(type).name;
    EXPECT_GT(lost_plain, 1.06 * least) << format(type).name;
  }
}

TEST_P(ImportanceTest, GridsAreWhatTheFormatReads) {
  const Format& f = format(GetParam());
  const std::vector<float> in = weights(static_cast<size_t>(f.group), 11);
  std::vector<std::byte> bytes(static_cast<size_t>(f.group_bytes));
  from_important(GetParam())(in.data(), nullptr, bytes.data(), f.group);
  std::vector<float> read(in.size());
  f.to_float(bytes.data(), read.data(), f.group);
  Grid grid;
  grid_format(GetParam()).grid(bytes.data(), grid);
  std::vector<int8_t> codes(in.size());
  for (int i = 0; i < f.group; ++i) {
    const int code = nearest_code(grid, i, read[static_cast<size_t>(i)]);
    codes[static_cast<size_t>(i)] = static_cast<int8_t>(code);
    EXPECT_EQ(value_of(grid, i, code), read[static_cast<size_t>(i)]) << i;
  }
  // Codes taken away and put back.
  std::vector<std::byte> again = bytes;
  const std::vector<int8_t> none(in.size(), static_cast<int8_t>(grid.low));
  grid_format(GetParam()).put_codes(none.data(), again.data());
  EXPECT_NE(again, bytes);
  grid_format(GetParam()).put_codes(codes.data(), again.data());
  std::vector<float> same(in.size());
  f.to_float(again.data(), same.data(), f.group);
  EXPECT_EQ(same, read);
}

INSTANTIATE_TEST_SUITE_P(Formats, ImportanceTest, ::testing::ValuesIn(formats_with_scales()),
                         [](const auto& each) { return std::string(format(each.param).name); });

}  // namespace
}  // namespace millrace
