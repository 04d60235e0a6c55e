#include "eval/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/reference/reference.h"
#include "model/shapes.h"

namespace millrace {
namespace {

struct Subject {
  std::unique_ptr<Backend> backend = make_reference_backend();
  std::unique_ptr<Model> model;
  std::unique_ptr<Executor> executor;

  explicit Subject(uint64_t seed, DType kv = DType::f32) {
    ModelSpec spec = named_shape("stories-14m").value();
    spec.layers.resize(1);
    spec.vocab = 64;
    model = Model::random(spec, DType::f32, seed, *backend).value();
    executor = Executor::create(*model, *backend, {.context = 40, .rows = 16, .wanted = 16, .kv = kv}).value();
  }
};

std::vector<ScoredText> texts() {
  std::vector<ScoredText> all;
  for (int t = 0; t < 3; ++t) {
    ScoredText text;
    for (int i = 0; i < 38; ++i) text.tokens.push_back((i * 7 + t * 13 + i * i) % 64);
    text.first = 5;
    all.push_back(std::move(text));
  }
  return all;
}

TEST(Compare, AModelIsLikeItself) {
  Subject one(3), two(3);
  const Comparison same = compare_models(*one.executor, *two.executor, texts(), {}).value();
  EXPECT_EQ(same.tokens, 3 * 33);
  EXPECT_EQ(same.kl_at(1), 0);
  EXPECT_EQ(same.flips, 0);
  EXPECT_EQ(same.perplexity_change(), 0);
  EXPECT_EQ(same.perplexity_change_error(), 0);
}

TEST(Compare, PerplexitiesAreThoseOfEachAlone) {
  Subject one(3), two(4);
  const auto all = texts();
  const Comparison other = compare_models(*one.executor, *two.executor, all, {}).value();
  const Perplexity base = score_texts(*one.executor, all, {}).value(),
                   variant = score_texts(*two.executor, all, {}).value();
  EXPECT_NEAR(other.base_perplexity(), base.value(), 1e-4 * base.value());
  EXPECT_NEAR(other.variant_perplexity(), variant.value(), 1e-4 * variant.value());
  EXPECT_NEAR(other.perplexity_change(), variant.value() / base.value() - 1, 1e-4);
  EXPECT_GT(other.kl_mean(), 1e-4);
  EXPECT_LE(other.kl_at(0.5), other.kl_at(0.99));
  EXPECT_LE(other.kl_at(0.99), other.kl_at(1));
  int64_t tokens = 0, flips = 0;
  double kl = 0;
  for (const DepthShare& depth : other.depths) tokens += depth.tokens, flips += depth.flips, kl += depth.kl_sum;
  EXPECT_EQ(tokens, other.tokens);
  EXPECT_EQ(flips, other.flips);
  EXPECT_NEAR(kl, other.kl_sum, 1e-9);
}

TEST(Compare, RoundedKeysAreNearAndStopsAreHeeded) {
  Subject one(3), two(3, DType::bf16);
  const Comparison near = compare_models(*one.executor, *two.executor, texts(), {}).value();
  EXPECT_GT(near.kl_mean(), 0);
  EXPECT_LT(near.kl_mean(), 1e-3);
  EXPECT_FALSE(compare_models(*one.executor, *two.executor, texts(), [](int64_t) { return false; }).ok());
}

}  // namespace
}  // namespace millrace
