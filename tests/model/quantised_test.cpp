// Quantised checkpoints as models: the logits of other implementations over the same dequantised weights. One per kind
// is in the tree, the others are read where they lie.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "model/edit.h"
#include "model/rig.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> cases() {
  std::vector<fs::path> found;
  std::set<std::string> names;
  for (const char* folder :
       {MILLRACE_SOURCE_DIR "/tests/tensor/data/quant", MILLRACE_SOURCE_DIR "/../shared/golden-formats/quant"}) {
    std::error_code absent;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, absent))
      if (names.insert(entry.path().filename().string()).second) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.filename() < b.filename(); });
  return found;
}

std::string name_of(const testing::TestParamInfo<fs::path>& row) {
  std::string name = row.param.filename().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<float> logits_of(const fs::path& folder, Backend& backend, Keep keep, const test::Golden& golden) {
  auto checkpoint = Checkpoint::open(folder);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  auto source = ModelSource::open(*checkpoint, 64, keep);
  EXPECT_TRUE(source.ok()) << source.error().message;
  if (!source.ok()) return {};
  // What became of them, in one line with bytes.
  EXPECT_NE(source->kept_as().find(" MB) become "), std::string::npos) << source->kept_as();
  EXPECT_EQ(source->kept_as().find('\n'), std::string::npos) << source->kept_as();
  testing::Test::RecordProperty("kept_as", source->kept_as());
  const WeightPlan plan = plan_weights(*source, backend);
  auto model = Model::load(*source, backend);
  EXPECT_TRUE(model.ok()) << model.error().message;
  if (!model.ok()) return {};
  EXPECT_EQ(backend.used(Purpose::weights), plan.bytes());
  test::Runner runner(**model, backend, 1, static_cast<int>(golden.input.size()));
  return runner.step(0, 0, golden.input);
}

// Kullback-Leibler divergence of each row, in nats.
std::vector<double> kl_of_rows(const std::vector<float>& expected, const std::vector<float>& found, size_t rows) {
  const size_t width = expected.size() / rows;
  std::vector<double> all;
  for (size_t r = 0; r < rows; ++r) {
    auto log_sum = [&](const std::vector<float>& x) {
      double total = 0;
      for (size_t i = 0; i < width; ++i) total += std::exp(double{x[r * width + i]});
      return std::log(total);
    };
    const double a = log_sum(expected), b = log_sum(found);
    double sum = 0;
    for (size_t i = r * width; i < (r + 1) * width; ++i)
      sum += std::exp(expected[i] - a) * ((expected[i] - a) - (found[i] - b));
    all.push_back(sum);
  }
  return all;
}

double mean_kl(const std::vector<float>& expected, const std::vector<float>& found, size_t rows) {
  const std::vector<double> all = kl_of_rows(expected, found, rows);
  return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(rows);
}

class QuantisedModel : public testing::TestWithParam<fs::path> {};
INSTANTIATE_TEST_SUITE_P(Layouts, QuantisedModel, testing::ValuesIn(cases()), name_of);

TEST_P(QuantisedModel, ReferenceGivesTheStoredLogits) {
  const test::Golden golden = test::Golden::read(GetParam());
  auto backend = make_reference_backend();
  const std::vector<float> logits = logits_of(GetParam(), *backend, Keep::exact, golden);
  ASSERT_EQ(logits.size(), golden.logits.size());
  EXPECT_LE(test::worst_difference(logits, golden.logits), 1e-4f);
}

// What the small forms round, apart from what the CPU's fast activations round.
TEST_P(QuantisedModel, SmallFormsAreNear) {
  const test::Golden golden = test::Golden::read(GetParam());
  auto backend = make_cpu_backend({.threads = 1, .activations = Activations::float32});
  ASSERT_TRUE(backend.ok());
  const std::vector<float> logits = logits_of(GetParam(), **backend, Keep::small, golden);
  ASSERT_EQ(logits.size(), golden.logits.size());
  const double kl = mean_kl(golden.logits, logits, golden.input.size());
  RecordProperty("kl", fmt::format("{:.2e}", kl));
  EXPECT_LE(kl, 1e-3);
}

// All that the usual way of running rounds: these models have random weights, which makes them worse than real ones.
// Where two keys are nearly as likely, rounding turns attention from one to the other, and a single row is another one:
// in ct-w3-dense so does noise of 0.4 %, and int8 in groups of 32 computed in float64. So rows are counted.
TEST_P(QuantisedModel, RunsWithFastActivations) {
  const test::Golden golden = test::Golden::read(GetParam());
  auto backend = make_cpu_backend({.threads = 1});
  ASSERT_TRUE(backend.ok());
  const std::vector<float> logits = logits_of(GetParam(), **backend, Keep::small, golden);
  ASSERT_EQ(logits.size(), golden.logits.size());
  std::vector<double> rows = kl_of_rows(golden.logits, logits, golden.input.size());
  std::sort(rows.begin(), rows.end());
  EXPECT_LE(rows[rows.size() / 2], 1e-2);
  EXPECT_LE(rows[rows.size() - 1 - rows.size() / 20], 1e-1);
}

// gpt-oss as it is published: experts in MXFP4, NAME_blocks [experts, outputs, inputs / 32, 16] and NAME_scales beside
// them. Its twin has the same numbers as BF16, [experts, inputs, outputs], which holds them exactly.
struct Mxfp4Twin {
  test::EditedTensor blocks, scales, numbers;

  Mxfp4Twin(const test::EditedTensor& like, std::mt19937& random) {
    const int64_t experts = like.shape[0], inputs = like.shape[1], outputs = like.shape[2];
    blocks = {like.name + "_blocks", DType::u8, {experts, outputs, inputs / 32, 16}, {}};
    scales = {like.name + "_scales", DType::u8, {experts, outputs, inputs / 32}, {}};
    numbers = {like.name, DType::bf16, like.shape, std::string(like.bytes.size(), '\0')};
    constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (int64_t row = 0; row < experts * outputs; ++row) {
      for (int64_t i = 0; i < inputs; ++i) {
        if (i % 32 == 0) scales.bytes += static_cast<char>(random() % 4 + 121);  // 2^-6 to 2^-3
        const unsigned code = random() % 16;
        if (i % 2 == 0) blocks.bytes += static_cast<char>(code);
        if (i % 2 == 1)
          blocks.bytes.back() = static_cast<char>(static_cast<unsigned char>(blocks.bytes.back()) | code << 4);
        const int power = static_cast<unsigned char>(scales.bytes.back()) - 127;
        const float value = std::ldexp(code < 8 ? kValues[code] : -kValues[code - 8], power);
        const uint16_t stored = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
        const int64_t at = (row / outputs * inputs + i) * outputs + row % outputs;
        std::memcpy(numbers.bytes.data() + at * 2, &stored, 2);
      }
    }
  }
};

TEST(QuantisedExperts, GptOssOpensAsItIsPublished) {
  const fs::path golden = MILLRACE_SOURCE_DIR "/../shared/golden/gpt_oss";
  if (!fs::exists(golden)) GTEST_SKIP() << "no " << golden;
  test::Edited packed(golden.string()), plain(golden.string());
  std::mt19937 random(5);
  std::vector<test::EditedTensor> more;
  for (test::EditedTensor& tensor : plain.tensors) {
    if (!tensor.name.ends_with("experts.gate_up_proj") && !tensor.name.ends_with("experts.down_proj")) continue;
    Mxfp4Twin twin(tensor, random);
    packed.remove(tensor.name);
    packed.tensors.push_back(twin.blocks);
    packed.tensors.push_back(twin.scales);
    tensor = twin.numbers;
  }
  packed.config["quantization_config"] = JsonObject{{"quant_method", "mxfp4"}};
  const auto small = packed.open(), wide = plain.open();
  ASSERT_TRUE(small.ok() && wide.ok());
  const std::vector<int32_t> tokens = {1, 17, 230, 44, 5, 300, 9};
  auto logits = [&](const Checkpoint& checkpoint, const char* kept) {
    auto backend = make_reference_backend();
    auto source = ModelSource::open(checkpoint, 64, Keep::small);
    EXPECT_TRUE(source.ok()) << source.error().message;
    EXPECT_NE(source->kept_as().find(kept), std::string::npos) << source->kept_as();
    for (const Slot& slot : slots(source->spec())) {
      if (slot.experts > 0 && *kept != 0) {
        EXPECT_EQ(source->type_of(slot), DType::mxfp4) << slot.name;
      }
    }
    auto model = Model::load(*source, *backend);
    EXPECT_TRUE(model.ok()) << model.error().message;
    test::Runner runner(**model, *backend, 1, static_cast<int>(tokens.size()));
    return runner.step(0, 0, tokens);
  };
  EXPECT_EQ(logits(*small, "MXFP4"), logits(*wide, ""));
}

}  // namespace
}  // namespace millrace
