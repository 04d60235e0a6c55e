// Keys and values of fewer bits: what is read back is as near as the form promises, and turning changes no product.
#include "backend/rig.h"

namespace millrace::testing {
namespace {

std::vector<float> kept(DType type, std::vector<float> numbers, bool turned = false) {
  const auto dim = static_cast<int64_t>(numbers.size());
  if (turned) kv_turn(numbers.data(), dim);
  std::vector<std::byte> codes(static_cast<size_t>(kv_code_bytes(type, dim)), std::byte{0xA5});
  std::byte factor[4] = {};
  kv_write(type, numbers.data(), dim, codes.data(), factor);
  std::vector<float> out(numbers.size(), NAN);
  kv_read(type, codes.data(), factor, dim, out.data());
  if (turned) kv_turn(out.data(), dim);
  return out;
}

TEST(KvForm, EightBitsAreNear) {
  Random random(31);
  for (float size : {1e-6f, 1.0f, 300.0f}) {
    const std::vector<float> numbers = random.normals(128, size);
    float most = 0;
    for (float number : numbers) most = std::max(most, std::abs(number));
    const std::vector<float> bytes = kept(DType::i8, numbers), floats = kept(DType::f8_e4m3, numbers);
    for (size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_LE(std::abs(bytes[i] - numbers[i]), most / 127 * 0.5001f);
      // Three bits after the first, steps of 2^-9 below 2^-6.
      EXPECT_LE(std::abs(floats[i] - numbers[i]), std::max(std::abs(numbers[i]) / 16, most / 448 / 1024) * 1.001f);
    }
  }
}

TEST(KvForm, FourBitsAreNear) {
  Random random(32);
  const std::vector<float> numbers = random.normals(96, 2), read = kept(DType::q4_0, numbers);
  for (size_t first = 0; first < numbers.size(); first += 32) {
    float most = 0;
    for (size_t i = first; i < first + 32; ++i) most = std::max(most, std::abs(numbers[i]));
    // A step is an eighth of the largest; on its other side the range ends a step earlier.
    for (size_t i = first; i < first + 32; ++i) EXPECT_LE(std::abs(read[i] - numbers[i]), most / 8 * 1.01f) << i;
  }
}

TEST(KvForm, ZeroStaysZeroAndWhatIsNoNumberShows) {
  for (DType type : {DType::i8, DType::f8_e4m3, DType::q4_0}) {
    std::vector<float> numbers(64, 0.0f);
    for (float number : kept(type, numbers)) EXPECT_EQ(number, 0);
    for (float odd : {NAN, INFINITY, -INFINITY}) {
      numbers[3] = odd;
      EXPECT_TRUE(std::isnan(kept(type, numbers)[3])) << format(type).name;
    }
  }
}

TEST(KvForm, TurningKeepsProductsAndUndoesItself) {
  Random random(33);
  for (int64_t dim : {32, 64, 80, 96, 128, 576}) {
    std::vector<float> a = random.normals(dim), b = random.normals(dim), again = a;
    auto product = [&] {
      double sum = 0;
      for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
      return sum;
    };
    const double before = product();
    kv_turn(again.data(), dim);
    kv_turn(again.data(), dim);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(again[i], a[i], 1e-5);
    kv_turn(a.data(), dim);
    kv_turn(b.data(), dim);
    EXPECT_NEAR(product(), before, 1e-4 * static_cast<double>(dim));
  }
}

// What turning is for: a number that stands out takes the others' bits, unless it is spread over all.
TEST(KvForm, AnOutlierCostsLessTurned) {
  Random random(34);
  std::vector<float> numbers = random.normals(128);
  for (size_t i : {5u, 40u, 70u, 101u}) numbers[i] = 40;
  auto error = [&](const std::vector<float>& read) {
    double sum = 0;
    for (size_t i = 0; i < read.size(); ++i) sum += std::pow(static_cast<double>(read[i]) - numbers[i], 2);
    return sum;
  };
  EXPECT_LT(error(kept(DType::q4_0, numbers, true)) * 2, error(kept(DType::q4_0, numbers)));
}

TEST(KvForm, NamesOfOtherProgramsAreKnown) {
  EXPECT_EQ(kv_form_from_name("q8_0"), KvForm(DType::i8));
  EXPECT_EQ(kv_form_from_name("fp8_e4m3"), kv_form_from_name("fp8"));
  EXPECT_FALSE(kv_form_from_name("q4-plain")->turned);
  EXPECT_FALSE(kv_form_from_name("q5_1").has_value());
  EXPECT_EQ(KvForm(DType::q4_0, DType::i8, true).name(), "Q4 keys and Q8 values");
  EXPECT_NE(KvForm(DType::q4_0, DType::q4_0, false).name(), KvForm(DType::q4_0).name());
}

}  // namespace
}  // namespace millrace::testing
