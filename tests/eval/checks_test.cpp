#include <gtest/gtest.h>

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "eval/cache_check.h"
#include "eval/golden.h"
#include "eval/perplexity.h"

namespace millrace {
namespace {

std::filesystem::path folder(const char* name) {
  return std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/model/golden" / name;
}

struct Rig {
  Checkpoint checkpoint;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;

  Rig(const char* name, std::unique_ptr<Backend> on)
      : checkpoint(Checkpoint::open(folder(name)).value()), backend(std::move(on)) {
    model = Model::load(checkpoint, *backend, {.context = 128}).value();
  }
  std::unique_ptr<Executor> executor(const ExecutorOptions& options) {
    return Executor::create(*model, *backend, options).value();
  }
};

std::unique_ptr<Backend> cpu(int threads, Activations activations) {
  return make_cpu_backend({.threads = threads, .activations = activations}).value();
}

TEST(GoldenCheck, PassesWhereTheLogitsAreRight) {
  for (const char* name : {"llama-gqa-rope3", "gemma2", "gpt2"}) {
    Golden golden = read_golden(folder(name) / "golden.safetensors").value();
    ExecutorOptions options = golden_options(golden);
    options.rows = options.wanted = 9;  // several steps
    options.kv = DType::f32;
    Rig exact(name, make_reference_backend());
    auto result = check_golden(*exact.executor(options), golden, GoldenRule::reference).value();
    EXPECT_TRUE(result.passed()) << name << ": " << result.failure;
    EXPECT_EQ(result.distance.rows, static_cast<int64_t>(golden.input.size()));
    EXPECT_EQ(result.greedy, 16);
    Rig plain(name, cpu(2, Activations::float32));
    result = check_golden(*plain.executor(options), golden, GoldenRule::float32).value();
    EXPECT_TRUE(result.passed()) << name << ": " << result.failure;
    for (DType kv : {DType::bf16, DType::i8}) {
      options.kv = kv;
      Rig fast(name, cpu(2, Activations::fast));
      result = check_golden(*fast.executor(options), golden, GoldenRule::reduced).value();
      EXPECT_TRUE(result.passed()) << name << ", " << options.kv.name() << ": " << result.failure;
    }
    options.kv = DType::f8_e4m3;  // three bits of a number: coarser by far than one of eight
    Rig coarse(name, cpu(2, Activations::fast));
    result = check_golden(*coarse.executor(options), golden, GoldenRule::reduced).value();
    EXPECT_LT(result.distance.kl_mean(), 2e-2) << name;
  }
}

TEST(GoldenCheck, FailsWhereTheyAreNot) {
  const Golden golden = read_golden(folder("llama-gqa-rope3") / "golden.safetensors").value();
  ExecutorOptions options = golden_options(golden);
  options.kv = DType::f32;
  Rig rig("llama-gqa-rope3", make_reference_backend());
  auto executor = rig.executor(options);

  Golden one_off = golden;
  one_off.logits[1234] += 0.1f;
  auto result = check_golden(*executor, one_off, GoldenRule::reference).value();
  EXPECT_FALSE(result.passed());
  EXPECT_NEAR(result.distance.largest_difference, 0.1, 1e-3);

  Golden shifted = golden;  // the same distributions, other logits
  for (float& logit : shifted.logits) logit += 1;
  EXPECT_FALSE(check_golden(*executor, shifted, GoldenRule::reference).value().passed());
  EXPECT_TRUE(check_golden(*executor, shifted, GoldenRule::float32).value().passed());

  Golden other_input = golden;
  other_input.input[3] = (other_input.input[3] + 1) % 320;
  EXPECT_FALSE(check_golden(*executor, other_input, GoldenRule::reduced).value().passed());

  Golden other_token = golden;
  other_token.gaps[5] = 3;
  other_token.greedy[5] = (other_token.greedy[5] + 1) % 320;
  result = check_golden(*executor, other_token, GoldenRule::reduced).value();
  EXPECT_FALSE(result.passed());
  EXPECT_EQ(result.first_difference, 5);
  EXPECT_EQ(result.gap_there, 3);
  other_token.gaps[5] = 0.3f;  // too close to call in fewer bits; the tokens after it are another text's
  for (size_t i = 6; i < 16; ++i) other_token.gaps[i] = 0;
  EXPECT_TRUE(check_golden(*executor, other_token, GoldenRule::reduced).value().passed());

  Golden other_vocab = golden;
  other_vocab.vocab = 160;
  EXPECT_FALSE(check_golden(*executor, other_vocab, GoldenRule::reduced).ok());
}

TEST(CacheCheck, EveryWayGivesTheSameBits) {
  for (const char* name : {"llama-gqa-rope3", "mistral-swa", "bloom"}) {
    const Golden golden = read_golden(folder(name) / "golden.safetensors").value();
    const int32_t tokens = static_cast<int32_t>(golden.input.size());
    std::optional<CacheOutcome> expected;
    for (int threads : {1, 2}) {
      Rig rig(name, cpu(threads, Activations::fast));
      auto executor = rig.executor(cache_check_options(tokens, DType::f16, 16));
      for (const CacheWay& way : cache_ways(tokens, 16, threads == 1)) {
        CacheOutcome found = run_way(*executor, golden.input, way);
        if (!expected) expected = found;
        EXPECT_EQ(found.rows.size(), golden.input.size());
        if (way.planted) {
          EXPECT_GE(first_difference(*expected, found), tokens / 2) << name;
        } else {
          EXPECT_EQ(first_difference(*expected, found), -1) << name << ": " << way.name;
          EXPECT_EQ(found.hash, expected->hash);
        }
      }
    }
  }
}

TEST(Scoring, DoesNotDependOnHowTextsShareSteps) {
  Rig rig("llama-gqa-rope3", cpu(1, Activations::fast));
  std::vector<ScoredText> texts;
  for (int i = 0; i < 9; ++i) {
    ScoredText text;
    for (int t = 0; t < 2 + 7 * i; ++t) text.tokens.push_back((t * 31 + i * 17) % 320);
    text.first = 1 + i / 2;
    texts.push_back(text);
  }
  texts.push_back({{5}, 1});  // nothing to score
  Perplexity alone = score_texts(*rig.executor({.context = 80, .rows = 80, .wanted = 80}), texts, {}).value();
  Perplexity crowd =
      score_texts(*rig.executor({.context = 80, .rows = 23, .sequences = 4, .wanted = 11}), texts, {}).value();
  EXPECT_EQ(alone.total.tokens, crowd.total.tokens);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(alone.texts[i].tokens,
              std::max<int64_t>(0, static_cast<int64_t>(texts[i].tokens.size()) - texts[i].first));
    EXPECT_EQ(alone.texts[i].surprise, crowd.texts[i].surprise) << "text " << i;
  }
  EXPECT_EQ(alone.value(), crowd.value());
}

TEST(Scoring, IsTheMeanSurpriseOfTheStoredLogits) {
  const Golden golden = read_golden(folder("llama-gqa-rope3") / "golden.safetensors").value();
  Rig rig("llama-gqa-rope3", cpu(1, Activations::float32));
  std::vector<ScoredText> texts = {{golden.input, 3}};
  ExecutorOptions options = scoring_options(texts, 320);
  options.kv = DType::f32;
  Perplexity found = score_texts(*rig.executor(options), texts, {}).value();
  double surprise = 0;
  for (size_t i = 3; i < golden.input.size(); ++i) {
    surprise +=
        log_sum_exp(golden.row(i - 1)) - static_cast<double>(golden.row(i - 1)[static_cast<size_t>(golden.input[i])]);
  }
  EXPECT_EQ(found.total.tokens, static_cast<int64_t>(golden.input.size()) - 3);
  EXPECT_NEAR(found.total.surprise, surprise, 1e-3);
}

TEST(Scoring, StopsWhenToldAndRefusesWhatIsTooLong) {
  Rig rig("llama-gqa-rope3", cpu(1, Activations::fast));
  std::vector<ScoredText> texts = {{std::vector<Token>(50, 3), 1}, {std::vector<Token>(50, 4), 1}};
  auto executor = rig.executor({.context = 64, .rows = 16, .wanted = 16});
  auto stopped = score_texts(*executor, texts, [](int64_t tokens) { return tokens < 30; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, Code::cancelled);
  texts[1].tokens.resize(70);
  EXPECT_FALSE(score_texts(*executor, texts, {}).ok());
}

// Weights in codes may move a single row further, but not the mean.
TEST(GoldenCheck, CodesHaveALimitOfTheirOwn) {
  GoldenResult result;
  result.distance.rows = 20;
  result.distance.kl_sum = 20 * 6e-4;
  result.distance.kl_max = 8e-3;
  EXPECT_NE(golden_failure(result, GoldenRule::reduced, false), "");
  EXPECT_EQ(golden_failure(result, GoldenRule::codes, false), "");
  result.distance.kl_max = 2e-2;
  EXPECT_NE(golden_failure(result, GoldenRule::codes, false), "");
  EXPECT_EQ(golden_failure(result, GoldenRule::codes_of_codes, false), "");
  result.distance.kl_max = 8e-3;
  result.distance.kl_sum = 20 * 2e-3;
  EXPECT_NE(golden_failure(result, GoldenRule::codes, false), "");
  result.kl_median = 2e-2;
  EXPECT_NE(golden_failure(result, GoldenRule::codes_of_codes, false), "");
}

}  // namespace
}  // namespace millrace
