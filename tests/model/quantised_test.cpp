// Quantised checkpoints as models: the logits of other implementations over the same dequantised weights. One per kind
// is in the tree, the others are read where they lie.
#include <cmath>
#include <set>

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
  EXPECT_NE(source->kept_as(), "");
  testing::Test::RecordProperty("kept_as", source->kept_as());
  const WeightPlan plan = plan_weights(*source, backend);
  auto model = Model::load(*source, backend);
  EXPECT_TRUE(model.ok()) << model.error().message;
  if (!model.ok()) return {};
  EXPECT_EQ(backend.used(Purpose::weights), plan.bytes());
  test::Runner runner(**model, backend, 1, static_cast<int>(golden.input.size()));
  return runner.step(0, 0, golden.input);
}

// Mean Kullback-Leibler divergence of the rows, in nats.
double mean_kl(const std::vector<float>& expected, const std::vector<float>& found, size_t rows) {
  const size_t width = expected.size() / rows;
  double sum = 0;
  for (size_t r = 0; r < rows; ++r) {
    auto log_sum = [&](const std::vector<float>& x) {
      double total = 0;
      for (size_t i = 0; i < width; ++i) total += std::exp(double{x[r * width + i]});
      return std::log(total);
    };
    const double a = log_sum(expected), b = log_sum(found);
    for (size_t i = r * width; i < (r + 1) * width; ++i)
      sum += std::exp(expected[i] - a) * ((expected[i] - a) - (found[i] - b));
  }
  return sum / static_cast<double>(rows);
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
TEST_P(QuantisedModel, RunsWithFastActivations) {
  const test::Golden golden = test::Golden::read(GetParam());
  auto backend = make_cpu_backend({.threads = 1});
  ASSERT_TRUE(backend.ok());
  const std::vector<float> logits = logits_of(GetParam(), **backend, Keep::small, golden);
  ASSERT_EQ(logits.size(), golden.logits.size());
  EXPECT_LE(mean_kl(golden.logits, logits, golden.input.size()), 3e-2);
}

}  // namespace
}  // namespace millrace
