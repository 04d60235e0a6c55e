// GPTQ against the classical way to do it, in double: after each column the inverse is updated, and nothing is
// factored.
#include "shrink/gptq.h"

#include "shrink/rig.h"
#include "tensor/importance.h"

namespace millrace {
namespace {

constexpr int64_t kCols = 256, kRows = 24, kTokens = 700;

struct Layer {
  std::vector<float> weights = std::vector<float>(kRows * kCols), inputs = test::related_rows(kTokens, kCols, 21);
  std::vector<double> products = test::products_of(inputs, kTokens, kCols);

  Layer() {
    for (size_t i = 0; i < weights.size(); ++i) {
      double sum = 0;
      for (uint32_t d = 0; d < 4; ++d) sum += test::draw(8, static_cast<uint32_t>(i), d) - 0.5;
      weights[i] = static_cast<float>(0.05 * sum);
    }
  }
};

TEST(Curvature, IsTheInverse) {
  const Layer layer;
  Team team(2);
  const Curvature curvature = Curvature::make(team, layer.products, kCols, kTokens, 0.01).value();
  std::vector<double> h = layer.products;
  double mean = 0;
  for (size_t i = 0; i < kCols; ++i) mean += h[i * kCols + i] / kTokens / kCols;
  for (double& each : h) each /= kTokens;
  for (size_t i = 0; i < kCols; ++i) h[i * kCols + i] += 0.01 * mean;
  const std::vector<double> wanted = test::inverse_of(h, kCols);
  for (size_t i = 0; i < kCols; i += 17) {
    for (size_t j = 0; j < kCols; j += 5) {
      double sum = 0;  // (U^T U)_ij
      for (size_t k = 0; k < kCols; ++k)
        sum +=
            static_cast<double>(curvature.upper[k * kCols + i]) * static_cast<double>(curvature.upper[k * kCols + j]);
      EXPECT_NEAR(sum, wanted[i * kCols + j], 1e-5 * std::sqrt(wanted[i * kCols + i] * wanted[j * kCols + j]));
    }
  }
}

// Codes of one row of one group, whose scales are chosen before the first column.
std::vector<int> reference_codes(const Layer& layer, const Curvature& curvature, size_t row, DType type) {
  std::vector<double> h = layer.products;
  double mean = 0;
  for (size_t i = 0; i < kCols; ++i) mean += h[i * kCols + i] / kTokens / kCols;
  for (double& each : h) each /= kTokens;
  for (size_t i = 0; i < kCols; ++i) h[i * kCols + i] += 0.01 * mean;
  std::vector<double> inverse = test::inverse_of(h, kCols);
  std::vector<std::byte> group(static_cast<size_t>(format(type).group_bytes));
  const float* start = &layer.weights[row * kCols];
  from_important(type)(start, curvature.importance.data(), group.data(), kCols);
  Grid grid;
  grid_format(type).grid(group.data(), grid);
  std::vector<double> w(start, start + kCols);
  std::vector<int> codes;
  for (size_t j = 0; j < kCols; ++j) {
    const int code = nearest_code(grid, static_cast<int>(j), static_cast<float>(w[j]));
    codes.push_back(code);
    const double lost = w[j] - static_cast<double>(value_of(grid, static_cast<int>(j), code));
    const double pivot = inverse[j * kCols + j];
    for (size_t k = j; k < kCols; ++k) w[k] -= lost / pivot * inverse[j * kCols + k];
    for (size_t a = j + 1; a < kCols; ++a) {
      const double factor = inverse[a * kCols + j] / pivot;
      for (size_t b = j + 1; b < kCols; ++b) inverse[a * kCols + b] -= factor * inverse[j * kCols + b];
    }
  }
  return codes;
}

class GptqTest : public ::testing::TestWithParam<DType> {};

TEST_P(GptqTest, CodesAreThoseOfTheReference) {
  const Layer layer;
  Team team(2);
  const Curvature curvature = Curvature::make(team, layer.products, kCols, kTokens, 0.01).value();
  const auto bytes = gptq(team, layer.weights, kRows, curvature, {.type = GetParam()}).value();
  for (size_t row : {size_t{0}, size_t{17}}) {
    const std::vector<int> wanted = reference_codes(layer, curvature, row, GetParam());
    const auto size = static_cast<size_t>(format(GetParam()).group_bytes);
    Grid grid;
    grid_format(GetParam()).grid(&bytes[row * size], grid);
    std::vector<float> values(kCols);
    format(GetParam()).to_float(&bytes[row * size], values.data(), kCols);
    int differ = 0;  // where a number lies between two codes, float and double may part
    for (size_t j = 0; j < kCols; ++j) differ += nearest_code(grid, static_cast<int>(j), values[j]) != wanted[j];
    EXPECT_LE(differ, 3) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GptqTest,
                         ::testing::Values(DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k,
                                           DType::iq4_xs),
                         [](const auto& each) { return std::string(format(each.param).name); });

TEST(Gptq, LosesLessThanRoundingInEveryFormat) {
  const Layer layer;
  Team one(1), three(3);
  const Curvature curvature = Curvature::make(one, layer.products, kCols, kTokens, 0.01).value();
  for (DType type : {DType::q4_0, DType::q4_1, DType::q5_0, DType::q8_0, DType::q2_k, DType::q3_k, DType::q4_k,
                     DType::q6_k, DType::iq4_nl, DType::iq4_xs, DType::mxfp4}) {
    const auto bytes = gptq(one, layer.weights, kRows, curvature, {.type = type}).value();
    EXPECT_EQ(bytes, gptq(three, layer.weights, kRows, curvature, {.type = type}).value());
    std::vector<std::byte> plain(bytes.size());
    format(type).from_float(layer.weights.data(), plain.data(), kRows * kCols);
    auto lost = [&](const std::vector<std::byte>& from) {
      return output_error(one, layer.weights, widened(type, from, kRows * kCols), kRows, layer.products, kCols,
                          kTokens);
    };
    EXPECT_LT(lost(bytes), 0.8 * lost(plain)) << format(type).name;
  }
}

TEST(Gptq, InputsThatAreAlwaysZeroDoNoHarm) {
  Layer layer;
  for (size_t r = 0; r < kTokens; ++r) layer.inputs[r * kCols + 9] = 0;
  layer.products = test::products_of(layer.inputs, kTokens, kCols);
  Team team(1);
  const Curvature curvature = Curvature::make(team, layer.products, kCols, kTokens, 0.01).value();
  EXPECT_TRUE(curvature.dead[9]);
  const auto bytes = gptq(team, layer.weights, kRows, curvature, {.type = DType::q4_k}).value();
  for (float value : widened(DType::q4_k, bytes, kRows * kCols)) EXPECT_TRUE(std::isfinite(value));
}

TEST(Gptq, RefusesRowsAndFormatsThatDoNotFit) {
  Team team(1);
  Curvature narrow;
  narrow.cols = 100;
  EXPECT_FALSE(gptq(team, std::vector<float>(100), 1, narrow, {.type = DType::q4_k}).ok());
  EXPECT_FALSE(gptq(team, std::vector<float>(100), 1, narrow, {.type = DType::bf16}).ok());
}

}  // namespace
}  // namespace millrace
