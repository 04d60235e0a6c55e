// Encoders, embedders and rerankers against vectors and scores another implementation computed from the same files.
#include "eval/embed_golden.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "model/convert.h"
#include "model/forward.h"
#include "tensor/files.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

fs::path own_folder() { return fs::path(MILLRACE_SOURCE_DIR) / "tests/eval/embed"; }
fs::path shared_folder() { return fs::path(MILLRACE_SOURCE_DIR).parent_path() / "shared/golden-formats/embed"; }

// The project's, and those beside it.
std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const fs::path& folder : {own_folder(), shared_folder()}) {
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& each) {
  std::string name = each.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class EmbedGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  static fs::path folder_of() {
    const fs::path own = own_folder() / GetParam();
    return fs::exists(own) ? own : shared_folder() / GetParam();
  }

  EmbedResult check(Backend& backend, DType kv, GoldenRule rule) { return check(backend, kv, rule, folder_of()); }

  // The stored vectors against what the model at `path` gives.
  EmbedResult check(Backend& backend, DType kv, GoldenRule rule, const fs::path& path) {
    const fs::path folder = folder_of();
    auto golden = read_embed_golden(folder / "golden.safetensors");
    EXPECT_TRUE(golden.ok()) << golden.error().message;
    auto checkpoint = Checkpoint::open(path);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    auto source = ModelSource::open(*checkpoint);
    EXPECT_TRUE(source.ok()) << (source.ok() ? "" : source.error().message);
    if (!source.ok()) return {.failure = "not opened"};
    const WeightPlan weights = plan_weights(*source, backend);
    auto model = Model::load(*source, backend);
    EXPECT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(backend.used(Purpose::weights), weights.bytes());
    EncoderOptions options = embed_golden_options(*golden);
    options.kv = kv;
    auto encoder = Encoder::create(**model, backend, options);
    EXPECT_TRUE(encoder.ok()) << (encoder.ok() ? "" : encoder.error().message);
    if (!encoder.ok()) return {.failure = "not created"};
    const Encoder::Plan& plan = (*encoder)->planned();
    EXPECT_EQ(backend.used(Purpose::kv), plan.kv_bytes);
    EXPECT_EQ(backend.used(Purpose::workspace), plan.workspace_bytes);
    EXPECT_EQ(backend.used(Purpose::staging), plan.staging_bytes);
    auto result = check_embed_golden(**encoder, *golden, rule);
    EXPECT_TRUE(result.ok()) << result.error().message;
    return *result;
  }
};

TEST_P(EmbedGoldenTest, ReferenceGivesWhatIsStored) {
  auto backend = make_reference_backend();
  const EmbedResult result = check(*backend, DType::f32, GoldenRule::reference);
  EXPECT_EQ(result.failure, "");
  EXPECT_LE(result.difference, 1e-4 * std::max(1.0, result.largest));
}

TEST_P(EmbedGoldenTest, CpuInFloat32) {
  auto backend = make_cpu_backend({.threads = 2, .activations = Activations::float32});
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ(check(**backend, DType::f32, GoldenRule::float32).failure, "");
}

TEST_P(EmbedGoldenTest, CpuInFewerBits) {
  auto backend = make_cpu_backend({.threads = 2});
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ(check(**backend, DType::f16, GoldenRule::reduced).failure, "");
}

// The same vectors and scores out of a GGUF file, where the format has words for the model.
TEST_P(EmbedGoldenTest, AsGguf) {
  const test::Folder room;
  const fs::path file = room.path() / "x.gguf";
  const Checkpoint original = Checkpoint::open(folder_of()).value();
  const auto source = ModelSource::open(original);
  ASSERT_TRUE(source.ok()) << source.error().message;
  auto report = convert(*source, file, {.type = *FileType::parse("F32"), .threads = 1});
  if (!report.ok()) {
    const bool named = report.error().message.find("cannot say that this model has") != std::string::npos ||
                       report.error().message.find("has no name for") != std::string::npos;
    EXPECT_TRUE(named) << report.error().message;
    return;
  }
  auto reference = make_reference_backend();
  EXPECT_EQ(check(*reference, DType::f32, GoldenRule::reference, file).failure, "");
  auto cpu = make_cpu_backend({.threads = 2, .activations = Activations::float32}).value();
  EXPECT_EQ(check(*cpu, DType::f32, GoldenRule::float32, file).failure, "");
  auto fast = make_cpu_backend({.threads = 2}).value();
  EXPECT_EQ(check(*fast, DType::f16, GoldenRule::reduced, file).failure, "");
}

INSTANTIATE_TEST_SUITE_P(Models, EmbedGoldenTest, ::testing::ValuesIn(names()), test_name);

TEST(EmbedGolden, ADifferenceIsSeen) {
  auto golden = read_embed_golden(own_folder() / "bert-mean-dense/golden.safetensors");
  ASSERT_TRUE(golden.ok());
  auto checkpoint = Checkpoint::open(own_folder() / "bert-mean-dense");
  auto backend = make_reference_backend();
  auto model = Model::load(*checkpoint, *backend);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EncoderOptions options = embed_golden_options(*golden);
  options.kv = DType::f32;
  auto encoder = Encoder::create(**model, *backend, options);
  ASSERT_TRUE(encoder.ok());
  golden->texts[1].tokens[0] = (golden->texts[1].tokens[0] + 1) % (*model)->spec().vocab;
  auto result = check_embed_golden(**encoder, *golden, GoldenRule::reduced);
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->passed());
  const std::vector<Token> long_text(static_cast<size_t>(options.context) + 1, 1), strange = {-1}, none;
  EXPECT_FALSE((*encoder)->check({long_text}).ok());
  EXPECT_FALSE((*encoder)->check({strange}).ok());
  EXPECT_FALSE((*encoder)->check({none}).ok());
}

}  // namespace
}  // namespace millrace
