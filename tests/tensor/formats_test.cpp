// Number formats against vectors from another implementation: tests/tensor/data/NAME.bin holds groups of bytes and
// behind them the float32 numbers that ggml's reader (llama.cpp b21e4de) makes of them. Some of the groups it quantised
// itself (ordinary, evenly spaced, zero, huge and tiny numbers), the others are arbitrary bytes, among them scales that
// are NaN or minus zero.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "tensor/dtype.h"
#include "tensor/half.h"
#include "tensor/tensor.h"

namespace millrace {
namespace {

// A NaN equals any NaN: which one an invalid operation gives differs between processors.
bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

struct Known {
  DType type;
  uint64_t hash;  // of what ggml reads from 131,072 values' worth of arbitrary bytes
  double error;   // of ggml's quantiser on normal numbers: root mean square, relative; 0 where it was not measured
};

constexpr Known kKnown[] = {
    {DType::q4_0, 0x071af7f15c9b8f25u, 0.085636}, {DType::q4_1, 0x646a32f067e58db5u, 0.078021},
    {DType::q5_0, 0xcf65a3ad1e5d1725u, 0.042397}, {DType::q5_1, 0x14bf4c08daf6583cu, 0.037837},
    {DType::q8_0, 0x80dd5d8540ede425u, 0.005319}, {DType::q2_k, 0x877a0d684755e356u, 0.295427},
    {DType::q3_k, 0x89efb8b0d79bf8e5u, 0.150656}, {DType::q4_k, 0x4f258cc1287a9f81u, 0.071182},
    {DType::q5_k, 0x06ea9a6f03a9305au, 0.036098}, {DType::q6_k, 0xa005d111c02d53d1u, 0.017700},
    {DType::iq4_nl, 0x30335515487944e5u, 0.0},    {DType::iq4_xs, 0x5bfd07ff20db7ec1u, 0.0},
    {DType::iq2_xxs, 0xd40cc15c1f182fe1u, 0.0},   {DType::mxfp4, 0x13cd6c8a76ea2325u, 0.113369},
    {DType::iq2_xs, 0x1726adaea49a65f9u, 0.0},    {DType::iq2_s, 0x0bc674f6050fc54du, 0.0},
    {DType::iq3_xxs, 0x661b72feb1f47f6du, 0.0},   {DType::iq3_s, 0x3012e10cdcd51245u, 0.0},
    {DType::iq1_s, 0xf3e98aa18ef85025u, 0.0},     {DType::iq1_m, 0xadcd6251d0c47f25u, 0.0},
    {DType::tq1_0, 0xc0d933fafeb78325u, 0.0},     {DType::tq2_0, 0x40c5e0a510242325u, 0.0},
    {DType::q1_0, 0xc8bbec4e75972325u, 0.0},      {DType::q2_0, 0x6388ce02b1a4c325u, 0.0},
    {DType::nvfp4, 0xd473f87c20e62325u, 0.0},
};

float normal(uint64_t seed, uint32_t index) {
  const double a = uniform({seed, 0, index, 0}), b = uniform({seed, 0, index, 1});
  return static_cast<float>(std::sqrt(-2.0 * std::log(1.0 - a)) * std::cos(6.283185307179586 * b));
}

std::vector<float> there_and_back(const Format& f, const std::vector<float>& numbers) {
  const auto values = static_cast<int64_t>(numbers.size());
  std::vector<std::byte> stored(static_cast<size_t>(bytes_of(f.type, values)));
  f.from_float(numbers.data(), stored.data(), values);
  std::vector<float> out(numbers.size());
  f.to_float(stored.data(), out.data(), values);
  return out;
}

double relative_error(const std::vector<float>& wanted, const std::vector<float>& got) {
  double error = 0, power = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    error += std::pow(double{got[i]} - double{wanted[i]}, 2);
    power += double{wanted[i]} * double{wanted[i]};
  }
  return std::sqrt(error / power);
}

std::vector<Known> written() {
  std::vector<Known> out;
  std::copy_if(std::begin(kKnown), std::end(kKnown), std::back_inserter(out),
               [](const Known& known) { return format(known.type).from_float != nullptr; });
  return out;
}

std::string name_of(const testing::TestParamInfo<Known>& row) { return std::string(format(row.param.type).name); }

class Golden : public testing::TestWithParam<Known> {};
INSTANTIATE_TEST_SUITE_P(Formats, Golden, testing::ValuesIn(kKnown), name_of);
class Written : public testing::TestWithParam<Known> {};
INSTANTIATE_TEST_SUITE_P(Formats, Written, testing::ValuesIn(written()), name_of);

TEST_P(Golden, ReadsStoredVectorsBitForBit) {
  const Format& f = format(GetParam().type);
  const std::string path = std::string(MILLRACE_SOURCE_DIR "/tests/tensor/data/") + std::string(f.name) + ".bin";
  const auto file = read_file(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const size_t per_group = static_cast<size_t>(f.group_bytes) + static_cast<size_t>(f.group) * 4;
  const size_t groups = file->size() / per_group, values = groups * static_cast<size_t>(f.group);
  ASSERT_EQ(groups * per_group, file->size());
  ASSERT_GE(groups, 7u);
  std::vector<float> wanted(values), got(values);
  std::memcpy(wanted.data(), file->data() + groups * static_cast<size_t>(f.group_bytes), values * 4);
  f.to_float(reinterpret_cast<const std::byte*>(file->data()), got.data(), static_cast<int64_t>(values));
  for (size_t i = 0; i < values; ++i) {
    ASSERT_TRUE(same_bits(got[i], wanted[i])) << "value " << i << ": " << got[i] << " instead of " << wanted[i];
  }
}

TEST_P(Golden, ReadsArbitraryBytesAsTheOtherImplementationDoes) {
  const Format& f = format(GetParam().type);
  const size_t groups = 131072 / static_cast<size_t>(f.group);
  std::vector<std::byte> bytes(groups * static_cast<size_t>(f.group_bytes));
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto words = philox({11, static_cast<uint32_t>(f.ggml)}, {static_cast<uint32_t>(i / 16), 0, 0, 0});
    bytes[i] = static_cast<std::byte>(words[i / 4 % 4] >> (i % 4 * 8));
  }
  std::vector<float> numbers(131072);
  f.to_float(bytes.data(), numbers.data(), 131072);
  uint64_t hash = 14695981039346656037u;
  for (const float number : numbers) {
    const uint32_t bits = std::isnan(number) ? 0x7fc00000u : std::bit_cast<uint32_t>(number);
    hash = (hash ^ bits) * 1099511628211u;
  }
  EXPECT_EQ(hash, GetParam().hash);
}

TEST_P(Golden, ReadsAtAnyAddressAndStaysWithinItsBytes) {
  const Format& f = format(GetParam().type);
  const auto group_bytes = static_cast<size_t>(f.group_bytes);
  std::vector<std::byte> bytes(group_bytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  std::vector<float> wanted(static_cast<size_t>(f.group)), got(static_cast<size_t>(f.group) + 1, 7.0f);
  f.to_float(bytes.data(), wanted.data(), f.group);
  for (size_t shift = 0; shift < 8; ++shift) {
    auto moved =
        std::make_unique<std::byte[]>(group_bytes + shift);  // exactly as long as needed: a sanitizer sees the end
    std::memcpy(moved.get() + shift, bytes.data(), group_bytes);
    f.to_float(moved.get() + shift, got.data(), f.group);
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_TRUE(same_bits(got[i], wanted[i]));
    ASSERT_EQ(got.back(), 7.0f);
  }
}

TEST_P(Written, QuantisesAtLeastAsWellAsTheOtherImplementation) {
  const Format& f = format(GetParam().type);
  std::vector<float> numbers(65536);
  for (uint32_t i = 0; i < numbers.size(); ++i) numbers[i] = 0.02f * normal(3, i);
  // Unevenly spaced levels must do a tenth better than even ones in as many bytes (Q4_0).
  const double bound = GetParam().error > 0 ? GetParam().error * 1.001 : 0.9 * 0.085636;
  EXPECT_LT(relative_error(numbers, there_and_back(f, numbers)), bound);
}

TEST_P(Written, QuantisingTwiceChangesLittle) {
  const Format& f = format(GetParam().type);
  std::vector<float> numbers(4096);
  for (uint32_t i = 0; i < numbers.size(); ++i) numbers[i] = normal(5, i);
  const std::vector<float> once = there_and_back(f, numbers);
  EXPECT_LT(relative_error(once, there_and_back(f, once)), 0.5 * relative_error(numbers, once) + 1e-9);
}

TEST_P(Written, ZerosStayZero) {
  const Format& f = format(GetParam().type);
  for (const float number : there_and_back(f, std::vector<float>(512, 0.0f))) ASSERT_EQ(number, 0.0f);
}

TEST_P(Written, WhateverIsQuantisedReadsBackFinite) {
  const Format& f = format(GetParam().type);
  const float odd[] = {NAN,     INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e-45f,
                       -1e-40f, 1e-8f,    65504.0f,  1e6f,    -0.0f,    1.0f};
  for (uint32_t seed = 0; seed < 64; ++seed) {
    std::vector<float> numbers(256);
    for (uint32_t i = 0; i < numbers.size(); ++i) {
      const auto words = philox({seed, 1}, {i, 0, 0, 0});
      numbers[i] = words[0] % 4 == 0 ? odd[words[1] % std::size(odd)]
                                     : std::ldexp(normal(seed, i), static_cast<int>(seed) * 3 - 96);
    }
    for (const float number : there_and_back(f, numbers)) ASSERT_TRUE(std::isfinite(number)) << "seed " << seed;
  }
}

TEST_P(Written, OneLargeNumberSurvives) {
  const Format& f = format(GetParam().type);
  for (const float large : {1000.0f, -1000.0f}) {
    std::vector<float> numbers(256, 0.0f);
    numbers[37] = large;
    EXPECT_NEAR(there_and_back(f, numbers)[37] / large, 1.0, f.type == DType::mxfp4 ? 0.1 : 0.01);
  }
}

TEST(Formats, TableIsSound) {
  for (int i = 0; i < kDTypes; ++i) {
    const Format& f = format(static_cast<DType>(i));
    EXPECT_EQ(static_cast<int>(f.type), i);
    EXPECT_EQ(dtype_from_name(f.name), f.type);
    if (f.ggml >= 0) {
      EXPECT_EQ(dtype_from_ggml(static_cast<uint32_t>(f.ggml)), f.type);
    }
    if (f.group == 1) {
      EXPECT_EQ(dtype_from_safetensors(f.name), f.type);
    }
    if (f.from_float != nullptr) {
      EXPECT_TRUE(f.readable());
    }
  }
  EXPECT_EQ(dtype_from_name("q4_k"), DType::q4_k);
  EXPECT_EQ(dtype_from_name("q4"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
  EXPECT_EQ(dtype_from_ggml(4), std::nullopt);  // a format that was dropped
  EXPECT_EQ(dtype_from_ggml(0xffffffffu), std::nullopt);
  EXPECT_EQ(dtype_from_safetensors("Q4_K"), std::nullopt);
  EXPECT_EQ(dtype_from_safetensors("bf16"), std::nullopt);
  EXPECT_EQ(bytes_of(DType::q4_k, 512), 288);
}

TEST(Formats, PlainNumbersWiden) {
  const auto read = [](DType type, const auto& stored) {
    std::vector<float> out(stored.size());
    format(type).to_float(reinterpret_cast<const std::byte*>(stored.data()), out.data(),
                          static_cast<int64_t>(out.size()));
    return out;
  };
  using Floats = std::vector<float>;
  EXPECT_EQ(read(DType::f32, Floats{1.5f, -0.25f}), (Floats{1.5f, -0.25f}));
  EXPECT_EQ(read(DType::f64, std::vector<double>{0.1, -1e300}), (Floats{0.1f, -INFINITY}));
  EXPECT_EQ(read(DType::f16, std::vector<uint16_t>{0x3c00, 0xc000}), (Floats{1.0f, -2.0f}));
  EXPECT_EQ(read(DType::bf16, std::vector<uint16_t>{0x3f80, 0xc040}), (Floats{1.0f, -3.0f}));
  EXPECT_EQ(read(DType::f8_e4m3, std::vector<uint8_t>{0x38, 0x7e}), (Floats{1.0f, 448.0f}));
  EXPECT_EQ(read(DType::f8_e5m2, std::vector<uint8_t>{0x3c, 0xfb}), (Floats{1.0f, -57344.0f}));
  EXPECT_EQ(read(DType::i8, std::vector<int8_t>{-128, 127}), (Floats{-128.0f, 127.0f}));
  EXPECT_EQ(read(DType::i16, std::vector<int16_t>{-32768, 5}), (Floats{-32768.0f, 5.0f}));
  EXPECT_EQ(read(DType::i32, std::vector<int32_t>{-7, 16777217}), (Floats{-7.0f, 16777216.0f}));
  EXPECT_EQ(read(DType::i64, std::vector<int64_t>{-1, int64_t{1} << 40}), (Floats{-1.0f, 0x1p40f}));
  EXPECT_EQ(read(DType::u8, std::vector<uint8_t>{255}), (Floats{255.0f}));
  EXPECT_EQ(read(DType::u16, std::vector<uint16_t>{65535}), (Floats{65535.0f}));
  EXPECT_EQ(read(DType::u32, std::vector<uint32_t>{4000000000u}), (Floats{4e9f}));
  EXPECT_EQ(read(DType::u64, std::vector<uint64_t>{uint64_t{1} << 63}), (Floats{0x1p63f}));
  EXPECT_EQ(read(DType::boolean, std::vector<uint8_t>{0, 1}), (Floats{0.0f, 1.0f}));
}

TEST(Formats, PlainNumbersNarrow) {
  const Format& half = format(DType::f16);
  const std::vector<float> numbers = {1.0f, 2049.0f, 65520.0f, -1e-8f};
  EXPECT_EQ(there_and_back(half, numbers), (std::vector<float>{1.0f, 2048.0f, INFINITY, -0.0f}));
  EXPECT_EQ(there_and_back(format(DType::bf16), {1.00390625f}), (std::vector<float>{1.0f}));
  EXPECT_EQ(there_and_back(format(DType::f8_e4m3), {500.0f}), (std::vector<float>{448.0f}));
}

// A model quantised on one machine is the model quantised on another: these are the bytes, whatever compiler and
// processor.
TEST(Formats, QuantiseToTheSameBytesEverywhere) {
  const std::map<DType, uint64_t> wanted = {
      {DType::q4_0, 0x15cf5b29414e1f2au},   {DType::q4_1, 0x3860de212a335dceu},  {DType::q5_0, 0x23e791b7f01d624au},
      {DType::q5_1, 0x1949837f247985aau},   {DType::q8_0, 0x30d2169531d05eb8u},  {DType::q2_k, 0x84e8b0e607ba82fau},
      {DType::q3_k, 0xd15d9f8d9b3b70acu},   {DType::q4_k, 0x750237e41338c038u},  {DType::q5_k, 0x3862ee1023235aebu},
      {DType::q6_k, 0xb7bcdbcf792621cfu},   {DType::mxfp4, 0xe63cc0608893c03eu}, {DType::iq4_nl, 0xbdfe3cfe61a1f67fu},
      {DType::iq4_xs, 0xa835c7ade3e9100du},
  };
  std::vector<float> numbers(8192);
  for (uint32_t i = 0; i < numbers.size(); ++i) {  // no library function, so that the numbers are the same everywhere
    double sum = -2.0;
    for (uint32_t draw = 0; draw < 4; ++draw) sum += uniform({13, 0, i, draw});
    numbers[i] = static_cast<float>(sum * (i / 1024 % 2 == 0 ? 0.02 : 3.0));
  }
  for (const Known& known : written()) {
    const Format& f = format(known.type);
    std::vector<std::byte> stored(static_cast<size_t>(bytes_of(f.type, 8192)));
    f.from_float(numbers.data(), stored.data(), 8192);
    uint64_t hash = 14695981039346656037u;
    for (const std::byte byte : stored) hash = (hash ^ static_cast<uint64_t>(byte)) * 1099511628211u;
    EXPECT_TRUE(wanted.contains(f.type) && wanted.at(f.type) == hash) << fmt::format("{} 0x{:016x}", f.name, hash);
  }
}

// Rows may be quantised in any division: a group never looks at its neighbours.
TEST(Formats, GroupsAreIndependent) {
  for (const Known& known : written()) {
    const Format& f = format(known.type);
    std::vector<float> numbers(1024);
    for (uint32_t i = 0; i < numbers.size(); ++i) numbers[i] = normal(9, i);
    std::vector<std::byte> whole(static_cast<size_t>(bytes_of(f.type, 1024))), pieces(whole.size());
    f.from_float(numbers.data(), whole.data(), 1024);
    for (int64_t done = 0; done < 1024; done += f.group) {
      f.from_float(numbers.data() + done, pieces.data() + bytes_of(f.type, done), f.group);
    }
    EXPECT_EQ(whole, pieces) << f.name;
  }
}

}  // namespace
}  // namespace millrace
