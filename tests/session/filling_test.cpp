// Writing by filling masks, one request at a time: against whole runs that another implementation stored, and what
// always holds.
#include <gtest/gtest.h>

#include <filesystem>

#include "backend/reference/reference.h"
#include "base/file.h"
#include "base/json.h"
#include "session/generator.h"
#include "session/loaded_model.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// A tiny model whose tokens see each other, with weights of no meaning.
ModelSpec tiny(bool shifted = false) {
  ModelSpec spec = {.architecture = "llama", .vocab = 64, .width = 32, .context = 64};
  const NormSpec norm;
  const GqaSpec gqa = {.heads = 4, .kv_heads = 2, .head_dim = 8, .scale = 0.35f, .causal = false};
  spec.layers.assign(2, {.mixer = gqa, .ffn = DenseSpec{.width = 64}, .mixer_norm = norm, .ffn_norm = norm});
  spec.final_norm = norm;
  spec.tied = true;
  spec.fill = {.mask = 6, .shifted = shifted};
  return spec;
}

class FillingTest : public ::testing::Test {
 protected:
  void make(const ModelSpec& spec) {
    generator_.reset();
    backend_ = make_reference_backend();
    model_ = Model::random(spec, DType::f32, 3, *backend_).value();
    generator_ = Generator::create(*model_, *backend_, {.kv = DType::f32}).value();
  }
  void SetUp() override { make(tiny()); }
  Result<Generated> run(const GenerateOptions& options, std::vector<Token>* heard = nullptr) {
    return generator_->generate(std::vector<Token>{1, 20, 30, 40}, options, [&](const GeneratedToken& token) {
      if (heard != nullptr && !token.last) heard->push_back(token.id);
      return Generator::Reply::more;
    });
  }
  static GenerateOptions asked(int32_t steps, int32_t block) {
    return {.sampling = {.temperature = 0}, .max_tokens = 12, .fill = {steps, block}};
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Generator> generator_;
};

TEST_F(FillingTest, TellsTokensInOrderAndCountsPasses) {
  for (const bool shifted : {false, true}) {
    make(tiny(shifted));
    for (const int32_t block : {0, 4, 5}) {
      std::vector<Token> heard;
      const Generated out = run(asked(6, block), &heard).value();
      ASSERT_EQ(out.tokens.size(), 12u);
      EXPECT_EQ(heard, out.tokens);
      EXPECT_EQ(out.times.passes, 6);
      EXPECT_EQ(out.ending, Ending::length);
      for (const Token token : out.tokens) EXPECT_NE(token, 6);
      EXPECT_EQ(run(asked(6, block)).value().tokens, out.tokens);
    }
  }
}

TEST_F(FillingTest, BlocksAreAnApproximationAndOneBlockIsNot) {
  const Generated exact = run(asked(12, 0)).value();
  EXPECT_EQ(run(asked(12, 12)).value().tokens.size(), exact.tokens.size());
  // With one token a block and order of positions nothing after a token is seen when it is chosen.
  EXPECT_NE(run(asked(12, 1)).value().tokens, exact.tokens);
}

TEST_F(FillingTest, EndsAtTheFirstEndTokenAndAtTheUsualLength) {
  GenerateOptions options = asked(6, 0);
  const Generated out = run(options).value();
  options.end_tokens = {out.tokens[3]};
  const Generated shorter = run(options).value();
  EXPECT_LE(shorter.tokens.size(), 3u);
  EXPECT_EQ(shorter.ended_by, out.tokens[3]);
  options = asked(2, 0);
  options.max_tokens = -1;
  EXPECT_EQ(run(options).value().tokens.size(), 60u);  // the context has no room for kUsualFill
}

TEST_F(FillingTest, RefusesWhatCannotBePromised) {
  GenerateOptions options = asked(6, 0);
  options.logprobs = 2;
  EXPECT_EQ(run(options).error().code, Code::unsupported);
  options = asked(6, 0);
  options.sampling.presence = 1;
  EXPECT_EQ(run(options).error().code, Code::unsupported);
  // Who computes token by token does not run such a model by mistake.
  EXPECT_FALSE(Executor::create(*model_, *backend_, {.kv = DType::f32}).ok());
  ModelSpec nameless = tiny();
  nameless.fill = {};
  ExecutorOptions wanted;
  suit_requests(nameless, wanted);
  EXPECT_FALSE(wanted.sees_ahead);
}

TEST(FillingStory, GivesTheStoredRuns) {
  const fs::path folder = fs::path(MILLRACE_SOURCE_DIR).parent_path() / "shared/models/stories/diffusion";
  if (!fs::exists(folder)) GTEST_SKIP() << "no shared/models/stories/diffusion";
  const Json golden = parse_json(read_file(folder / "golden.json").value()).value();
  const auto checkpoint = Checkpoint::open(folder).value();
  auto backend = make_reference_backend();
  const auto model = Model::load(checkpoint, *backend).value();
  EXPECT_EQ(model->spec().fill.mask, 6);
  const Json& run = golden.as_object().at("runs").as_array().at(0);
  auto tokens = [&](const char* key) {
    std::vector<Token> out;
    for (const Json& id : run.as_object().at(key).as_array()) out.push_back(static_cast<Token>(id.as_int64()));
    return out;
  };
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = static_cast<int32_t>(run.as_object().at("masks").as_int64());
  options.fill.steps = static_cast<int32_t>(run.as_object().at("steps").as_int64());
  const std::vector<Token> prompt = tokens("prompt");
  const int32_t context = static_cast<int32_t>(prompt.size()) + options.max_tokens;
  const auto generator = Generator::create(*model, *backend, {.context = context, .kv = DType::f32}).value();
  const Generated out =
      generator->generate(prompt, options, [](const GeneratedToken&) { return Generator::Reply::more; }).value();
  EXPECT_EQ(out.tokens, tokens("out"));
}

}  // namespace
}  // namespace millrace
