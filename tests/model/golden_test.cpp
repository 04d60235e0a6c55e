// Every architecture against logits another implementation computed from the same files.
#include "model/rig.h"

namespace millrace {
namespace {

using test::Golden;
using test::Runner;

class GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, ReferenceGivesTheStoredLogits) {
  const auto folder = test::golden_path(GetParam());
  const Golden golden = Golden::read(folder);
  auto checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  auto backend = make_reference_backend();
  const int tokens = static_cast<int>(golden.input.size() + golden.greedy.size());
  auto source = ModelSource::open(*checkpoint, tokens);
  ASSERT_TRUE(source.ok()) << source.error().message;
  const WeightPlan plan = plan_weights(*source, *backend);
  auto model = Model::load(*source, *backend);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(backend->used(Purpose::weights), plan.bytes());

  Runner runner(**model, *backend, 1, tokens);
  const std::vector<float> logits = runner.step(0, 0, golden.input);
  ASSERT_EQ(logits.size(), golden.logits.size());
  EXPECT_LE(test::worst_difference(logits, golden.logits), test::golden_limit(GetParam()));

  const size_t vocab = static_cast<size_t>((*model)->spec().vocab);
  std::vector<float> last(logits.end() - static_cast<std::ptrdiff_t>(vocab), logits.end());
  for (size_t i = 0; i < golden.greedy.size(); ++i) {
    if (golden.gap[i] > 0.1f) {
      ASSERT_EQ(test::best(last), golden.greedy[i]) << "token " << i << ", gap " << golden.gap[i];
    }
    last = runner.step(0, static_cast<int>(golden.input.size() + i), {golden.greedy[i]});
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, GoldenTest, ::testing::ValuesIn(test::golden_names()), test::test_name);

}  // namespace
}  // namespace millrace
