// Which rows of the kernel table the tests of this folder covered: every row compiled in is named, and one this machine
// cannot run is reported as skipped, so that nobody takes a short run for a whole one.
#include <algorithm>

#include "backend/rig.h"

namespace millrace::testing {
namespace {

class Isa : public ::testing::TestWithParam<const char*> {};

#if defined(__aarch64__)
constexpr const char* kIsas[] = {"scalar", "neon", "i8mm"};
#elif defined(__x86_64__)
constexpr const char* kIsas[] = {"scalar", "avx2", "avx512", "amx_bf16", "amx"};
#else
constexpr const char* kIsas[] = {"scalar"};
#endif

TEST_P(Isa, RunsHere) {
  std::vector<std::string_view> here = cpu_isas();
  if (std::find(here.begin(), here.end(), GetParam()) == here.end())
    GTEST_SKIP() << "this machine has no " << GetParam() << ": its kernels were not tested";
  CpuOptions options;
  options.threads = 1;
  options.isa = GetParam();
  auto backend = make_cpu_backend(options);
  ASSERT_TRUE(backend.ok()) << backend.error().message;
  auto peaks = measure_cpu_peaks(GetParam(), 1);
  ASSERT_TRUE(peaks.ok()) << peaks.error().message;
  EXPECT_EQ(peaks->isa, GetParam());
  EXPECT_GT(peaks->f32, 0);
}

INSTANTIATE_TEST_SUITE_P(Rows, Isa, ::testing::ValuesIn(kIsas), [](const auto& row) { return std::string(row.param); });

// What --kv auto comes to, by machine.
TEST(Isas, CacheFormatIsTheFastest) {
  for (const std::string_view isa : cpu_isas()) {
    for (const Activations activations : {Activations::fast, Activations::float32}) {
      auto backend = make_cpu_backend({.threads = 1, .isa = isa, .activations = activations});
      ASSERT_TRUE(backend.ok()) << backend.error().message;
      const bool rounds = (isa == "neon" || isa == "i8mm") && activations == Activations::fast;
      EXPECT_EQ(fastest_kv(**backend), rounds ? DType::bf16 : DType::f16) << isa;
    }
  }
  EXPECT_EQ(fastest_kv(*make_reference_backend()), DType::f16);
}

// Rows that sum integers exactly, in the same order of floats, must agree bit for bit.
TEST(Isas, AmxAgreesWithAvx512) {
  std::vector<std::string_view> here = cpu_isas();
  if (std::find(here.begin(), here.end(), "amx") == here.end()) GTEST_SKIP() << "this machine has no amx";
  Random random(21);
  for (DType type : {DType::q8_0, DType::q4_0, DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_xs}) {
    int64_t inputs = 1024, outputs = 200, rows = 83;
    auto bytes = random_matrix(type, outputs, inputs, random);
    Rows in(rows, inputs, random), a(rows, outputs), b(rows, outputs);
    Machine tiles = cpu("amx", 2, Activations::fast), vectors = cpu("avx512", 2, Activations::fast);
    tiles.ops->linear(tiles.upload(type, outputs, inputs, bytes), in.tensor(), a.tensor());
    vectors.ops->linear(vectors.upload(type, outputs, inputs, bytes), in.tensor(), b.tensor());
    expect_same_bits(a, b, 0, 0, rows, std::string(format(type).name));
  }
}

// Tiles multiply quantised weights as bfloat16: what comes out is the product of weights that were rounded to it
// before, but for the order of sums (and weights that lie between two such numbers).
TEST(Isas, AmxRoundsWeightsToBfloat16) {
  std::vector<std::string_view> here = cpu_isas();
  if (std::find(here.begin(), here.end(), "amx_bf16") == here.end()) GTEST_SKIP() << "this machine has no amx";
  Random random(21);
  const int64_t inputs = 1024, outputs = 200, rows = 83, count = inputs * outputs;
  for (DType type : {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q2_k, DType::q3_k,
                     DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_nl, DType::iq4_xs}) {
    auto bytes = random_matrix(type, outputs, inputs, random);
    std::vector<float> values(static_cast<size_t>(count));
    format(type).to_float(bytes.data(), values.data(), count);
    std::vector<std::byte> rounded(static_cast<size_t>(count) * 2);
    format(DType::bf16).from_float(values.data(), rounded.data(), count);
    Rows in(rows, inputs, random), a(rows, outputs), b(rows, outputs);
    Machine machine = cpu("amx_bf16", 2, Activations::fast);
    machine.ops->linear(machine.upload(type, outputs, inputs, bytes), in.tensor(), a.tensor());
    machine.ops->linear(machine.upload(DType::bf16, outputs, inputs, rounded), in.tensor(), b.tensor());
    expect_close(a, b, 3e-4f, std::string(format(type).name));
  }
}

// Sums over more inputs than any kernel takes at a time are put down and taken up again: a row by itself, which is not
// interrupted, must have the bits it has among others.
TEST(Isas, LongSumsMayBeInterrupted) {
  Random random(22);
  const int64_t outputs = 70, rows = 53;
  for (DType type : {DType::bf16, DType::f16, DType::q8_0, DType::q4_0, DType::q4_k, DType::q6_k}) {
    const int64_t inputs = format(type).group > 1 ? 4352 : 4200;
    auto bytes = random_matrix(type, outputs, inputs, random);
    Rows in(rows, inputs, random);
    for (std::string_view isa : cpu_isas()) {
      Machine machine = cpu(isa, 2, Activations::fast);
      Weight weight = machine.upload(type, outputs, inputs, bytes);
      Rows all(rows, outputs);
      machine.ops->linear(weight, in.tensor(), all.tensor());
      for (auto [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {17, 1}, {30, 16}, {52, 1}}) {
        Rows some(count, outputs);
        machine.ops->linear(weight, in.slice(first, count), some.tensor());
        expect_same_bits(some, all, 0, first, count, std::string(isa) + " " + std::string(format(type).name));
      }
    }
  }
}

}  // namespace
}  // namespace millrace::testing
