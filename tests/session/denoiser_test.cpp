// Writing by filling masks: against whole runs that another implementation stored, and what always holds.
#include "session/denoiser.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "backend/reference/reference.h"
#include "base/file.h"
#include "base/json.h"
#include "model/model.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// A tiny model whose tokens see each other, with weights of no meaning.
ModelSpec tiny() {
  ModelSpec spec = {.architecture = "llama", .vocab = 64, .width = 32, .context = 128};
  const NormSpec norm;
  const GqaSpec gqa = {.heads = 4, .kv_heads = 2, .head_dim = 8, .scale = 0.35f, .causal = false};
  spec.layers.assign(2, {.mixer = gqa, .ffn = DenseSpec{.width = 64}, .mixer_norm = norm, .ffn_norm = norm});
  spec.final_norm = norm;
  spec.tied = true;
  return spec;
}

class DenoiserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    backend_ = make_reference_backend();
    auto model = Model::random(tiny(), DType::f32, 3, *backend_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(*model);
    options_.length = 12;
    options_.mask = 6;
    ExecutorOptions wanted = denoise_options(4, options_);
    wanted.kv = DType::f32;
    auto executor = Executor::create(*model_, *backend_, wanted);
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    executor_ = std::move(*executor);
  }
  Denoised run(const DiffusionOptions& options, const Denoiser::Listener& listener = {}) {
    Denoiser denoiser(*executor_);
    auto out = denoiser.run(std::vector<Token>{1, 20, 30, 40}, options, listener);
    EXPECT_TRUE(out.ok()) << (out.ok() ? "" : out.error().message);
    return out.ok() ? *out : Denoised{};
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Executor> executor_;
  DiffusionOptions options_;
};

TEST_F(DenoiserTest, FillsEveryPositionOnceAndNeverWithTheMask) {
  for (const int32_t block : {0, 4, 5}) {
    for (const Remasking rule : {Remasking::confidence, Remasking::entropy, Remasking::margin, Remasking::order}) {
      DiffusionOptions options = options_;
      options.block = block;
      options.remasking = rule;
      options.steps = 6;
      const Denoised out = run(options);
      ASSERT_EQ(out.tokens.size(), 12u);
      for (const Token token : out.tokens) EXPECT_NE(token, options.mask);
      std::vector<int> times(12);
      for (const auto& pass : out.fixed)
        for (const int32_t at : pass) ++times[static_cast<size_t>(at)];
      EXPECT_EQ(times, std::vector<int>(12, 1));
      if (rule == Remasking::order && block == 0) {
        EXPECT_EQ(out.fixed.front(), (std::vector<int32_t>{0, 1}));
      }
    }
  }
}

TEST_F(DenoiserTest, OnePassTakesAllAtOnceAndDrawsRepeat) {
  DiffusionOptions options = options_;
  options.steps = 1;
  EXPECT_EQ(run(options).passes, 1);
  options.steps = 12;
  options.temperature = 1;
  options.seed = 9;
  const Denoised first = run(options), second = run(options);
  EXPECT_EQ(first.tokens, second.tokens);
  options.seed = 10;
  EXPECT_NE(run(options).tokens, first.tokens);
}

TEST_F(DenoiserTest, TellsTokensInOrderOnceWhatComesBeforeIsFixed) {
  std::vector<Token> heard;
  DiffusionOptions options = options_;
  const Denoised out = run(options, [&](Token token) {
    heard.push_back(token);
    return true;
  });
  EXPECT_EQ(heard, out.tokens);
  options.end_tokens = {out.tokens[3]};
  const Denoised shorter = run(options);
  EXPECT_LE(shorter.tokens.size(), 3u);
  EXPECT_EQ(shorter.ended_by, out.tokens[3]);
}

TEST_F(DenoiserTest, RefusesWhatDoesNotFit) {
  DiffusionOptions options = options_;
  options.length = 13;
  EXPECT_FALSE(Denoiser(*executor_).run(std::vector<Token>{1, 2, 3, 4}, options).ok());
  EXPECT_FALSE(Denoiser(*executor_).run(std::vector<Token>{64}, options_).ok());
  ExecutorOptions causal;
  causal.kv = DType::f32;
  EXPECT_FALSE(Executor::create(*model_, *backend_, causal).ok());
}

TEST(DenoiserStory, GivesTheStoredRuns) {
  const fs::path folder = fs::path(MILLRACE_SOURCE_DIR).parent_path() / "shared/models/stories/diffusion";
  if (!fs::exists(folder)) GTEST_SKIP() << "no shared/models/stories/diffusion";
  auto text = read_file(folder / "golden.json");
  ASSERT_TRUE(text.ok());
  auto golden = parse_json(*text);
  ASSERT_TRUE(golden.ok());
  auto checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.ok());
  auto backend = make_reference_backend();
  auto model = Model::load(*checkpoint, *backend);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const Json& run = golden->as_object().at("runs").as_array().at(0);
  auto tokens = [&](const char* key) {
    std::vector<Token> out;
    for (const Json& id : run.as_object().at(key).as_array()) out.push_back(static_cast<Token>(id.as_int64()));
    return out;
  };
  DiffusionOptions options;
  ASSERT_TRUE(read_diffusion(*checkpoint, (*model)->spec(), -1, options).ok());
  options.length = static_cast<int32_t>(run.as_object().at("masks").as_int64());
  options.steps = static_cast<int32_t>(run.as_object().at("steps").as_int64());
  const std::vector<Token> prompt = tokens("prompt");
  ExecutorOptions wanted = denoise_options(static_cast<int32_t>(prompt.size()), options);
  wanted.kv = DType::f32;
  auto executor = Executor::create(**model, *backend, wanted);
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  auto out = Denoiser(**executor).run(prompt, options);
  ASSERT_TRUE(out.ok()) << out.error().message;
  EXPECT_EQ(out->tokens, tokens("out"));
}

}  // namespace
}  // namespace millrace
