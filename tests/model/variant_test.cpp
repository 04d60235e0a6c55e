// Switches of the configurations that the goldens leave at their usual place, against logits that transformers' own
// model classes computed: old and new generations of keys, rotary scalings, biases, windows, tied heads, norms
// elsewhere.
#include "model/rig.h"

namespace millrace {
namespace {

class VariantTest : public ::testing::TestWithParam<std::string> {};

std::filesystem::path folder() { return std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/model/variants"; }

TEST_P(VariantTest, ReferenceGivesTheStoredLogits) {
  auto golden = Checkpoint::open(folder() / GetParam() / "golden.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  const StoredTensor* ids = golden->find("input_ids");
  std::vector<int32_t> input(static_cast<size_t>(ids->values()));
  std::memcpy(input.data(), ids->bytes.data(), ids->bytes.size());
  const std::vector<float> expected = *read_floats(*golden->find("logits"));  // of the last tokens

  auto checkpoint = Checkpoint::open(folder() / GetParam());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  auto backend = make_reference_backend();
  auto model = Model::load(*checkpoint, *backend, {.context = static_cast<int64_t>(input.size())});
  ASSERT_TRUE(model.ok()) << model.error().message;
  test::Runner runner(**model, *backend, 1, static_cast<int>(input.size()), DType::f32, 4);
  runner.want_last(static_cast<int>(golden->find("logits")->rows()));
  const std::vector<float> logits = runner.step(0, 0, input);
  ASSERT_EQ(logits.size(), expected.size());
  EXPECT_LE(test::worst_difference(logits, expected), 2e-5f);
}

INSTANTIATE_TEST_SUITE_P(Switches, VariantTest, ::testing::ValuesIn(test::folder_names(folder())), test::test_name);

}  // namespace
}  // namespace millrace
