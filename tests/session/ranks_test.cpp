// One model over several ranks gives the bits of one: every architecture, and an engine with all it does to pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backend/cuda/cuda.h"
#include "eval/crowd_check.h"
#include "eval/ranks_check.h"
#include "model/rig.h"
#include "model/shapes.h"
#include "session/loaded_model.h"
#include "session/ranked.h"

namespace millrace {
namespace {

using Folder = std::filesystem::path;

Result<std::unique_ptr<LoadedModel>> load(const Folder& path, const std::string& device, int ranks,
                                          RankCut cut = RankCut::outputs) {
  LoadChoice choice{.path = path, .device = device};
  choice.cpu.threads = 1;
  choice.ranks = ranks;
  choice.cut = cut;
  return LoadedModel::load(choice);
}

class RanksTest : public ::testing::TestWithParam<std::string> {};

void expect_same(const std::string& name, const std::string& device, const KvForm& kv, RankCut cut = RankCut::outputs) {
  const Folder folder = test::golden_path(name);
  std::vector<Token> tokens = test::Golden::read(folder).input;
  tokens.resize(std::min<size_t>(tokens.size(), 20));
  auto alone = load(folder, device, 1);
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  auto expected = run_ranks_ways((*alone)->model(), (*alone)->backend(), tokens, kv);
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  const std::vector<KvShape> shapes = kv_shapes((*alone)->model().spec(), kv);
  const bool states = std::any_of(shapes.begin(), shapes.end(), [](const KvShape& one) { return one.state.kept(); });
  for (const int ranks : {2, 4}) {
    auto loaded = load(folder, device, ranks, cut);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    auto found = run_ranks_ways((*loaded)->model(), (*loaded)->backend(), tokens, kv);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(first_difference(*expected, *found), "") << ranks << " ranks";
    for (const Ranked::Held& held : (*loaded)->ranked()->held()) {
      EXPECT_LT(held.weights, (*alone)->backend().used(Purpose::weights)) << ranks << " ranks";
      // Pages of models with states too are as large as a state's pieces need, which are whole on every rank.
      if (!states) {
        EXPECT_LE(held.kv, (*alone)->backend().used(Purpose::kv)) << ranks << " ranks";
      }
    }
  }
}

TEST_P(RanksTest, CpuGivesTheBitsOfOneRank) { expect_same(GetParam(), "cpu", DType::f16); }
TEST_P(RanksTest, ReferenceGivesTheBitsOfOneRank) { expect_same(GetParam(), "reference", DType::f32); }

// Models without experts have none, and are cut by outputs alone.
TEST_P(RanksTest, RanksOfWholeExpertsGiveTheBitsOfOne) {
  expect_same(GetParam(), "cpu", DType::f16, RankCut::experts);
  if (GetParam().find("moe") != std::string::npos) expect_same(GetParam(), "reference", DType::f32, RankCut::experts);
}

// Ranks of whole layers. What cannot be carried from one to the next is refused by name.
void expect_same_by_layers(const std::string& name, const KvForm& kv) {
  const Folder folder = test::golden_path(name);
  std::vector<Token> tokens = test::Golden::read(folder).input;
  tokens.resize(std::min<size_t>(tokens.size(), 20));
  auto alone = load(folder, "cpu", 1);
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  auto expected = run_ranks_ways((*alone)->model(), (*alone)->backend(), tokens, kv);
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  const auto layers = std::ssize((*alone)->model().spec().layers);
  for (const int ranks : {2, 4}) {
    auto loaded = load(folder, "cpu", ranks, RankCut::layers);
    if (!loaded.ok()) {
      EXPECT_NE(loaded.error().message.find("--pipeline"), std::string::npos) << loaded.error().message;
      if (layers < ranks) continue;
      static const std::set<std::string_view> kCarryMore = {"inputs of layers", "several streams", "reads the keys",
                                                            "attention that several"};
      EXPECT_TRUE(std::ranges::any_of(kCarryMore, [&](std::string_view why) {
        return loaded.error().message.find(why) != std::string::npos;
      })) << loaded.error().message;
      continue;
    }
    auto found = run_ranks_ways((*loaded)->model(), (*loaded)->backend(), tokens, kv);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(first_difference(*expected, *found), "") << ranks << " ranks";
    EXPECT_EQ((*loaded)->backend().used(Purpose::weights), (*loaded)->model().weight_bytes());
    int64_t weights = 0;
    for (const Ranked::Held& held : (*loaded)->ranked()->held()) {
      weights += held.weights;
      EXPECT_LE(held.kv, (*alone)->backend().used(Purpose::kv));  // pages are those of the group with the largest
      EXPECT_LT(held.weights, (*alone)->backend().used(Purpose::weights));
    }
    // All together hold the model once, and a tied table and constants more than once.
    EXPECT_GE(weights, (*alone)->backend().used(Purpose::weights));
  }
}

TEST_P(RanksTest, RanksOfWholeLayersGiveTheBitsOfOne) { expect_same_by_layers(GetParam(), DType::f16); }

INSTANTIATE_TEST_SUITE_P(Architectures, RanksTest, ::testing::ValuesIn(test::golden_names()), test::test_name);

// Neither outputs nor heads divide: five ranks, of which several keep the same key/value head.
TEST(Ranks, NeedNotDivide) {
  const Folder folder = test::golden_path("qwen3");
  std::vector<Token> tokens = test::Golden::read(folder).input;
  tokens.resize(12);
  auto alone = load(folder, "cpu", 1), five = load(folder, "cpu", 5), three = load(folder, "cpu", 3);
  ASSERT_TRUE(alone.ok() && five.ok() && three.ok());
  auto expected = run_ranks_ways((*alone)->model(), (*alone)->backend(), tokens, DType::bf16);
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  for (const auto* loaded : {&five, &three}) {
    auto found = run_ranks_ways((**loaded)->model(), (**loaded)->backend(), tokens, DType::bf16);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(first_difference(*expected, *found), "");
  }
}

// Every format that weights can be made in; outputs that do not divide among them.
TEST(Ranks, EveryFormatGivesTheBitsOfOneRank) {
  auto spec = named_shape("llama-3.2-1b");
  ASSERT_TRUE(spec.ok());
  spec->layers.resize(1);
  spec->vocab = 500, spec->width = 512;
  auto& attention = std::get<GqaSpec>(spec->layers[0].mixer);
  attention.heads = 8, attention.kv_heads = 2;
  std::get<DenseSpec>(spec->layers[0].ffn).width = 1280;
  std::vector<Token> tokens(9);
  std::iota(tokens.begin(), tokens.end(), 100);
  int formats = 0;
  for (int number = 0; number < kDTypes; ++number) {
    const auto type = static_cast<DType>(number);
    const Format& f = format(type);
    if (f.from_float == nullptr || (f.group == 1 && type != DType::f32 && type != DType::f16 && type != DType::bf16))
      continue;
    std::vector<RanksWay> expected;
    for (const int ranks : {1, 3}) {
      auto made = Ranked::open({.cpu = {.threads = 1}, .ranks = ranks},
                               [&](Backend& backend) { return Model::random(*spec, type, 7, backend); });
      ASSERT_TRUE(made.ok()) << f.name << ": " << made.error().message;
      auto ways = run_ranks_ways((*made)->model(), (*made)->backend(), tokens, DType::f16);
      ASSERT_TRUE(ways.ok()) << f.name << ": " << ways.error().message;
      if (ranks == 1) expected = *ways;
      EXPECT_EQ(first_difference(expected, *ways), "") << f.name;
    }
    ++formats;
  }
  EXPECT_GE(formats, 12);
}

TEST(Ranks, WhatIsPlannedIsTaken) {
  auto loaded = load(test::golden_path("llama-gqa-rope3"), "cpu", 2);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ((*loaded)->backend().used(Purpose::weights), (*loaded)->model().weight_bytes());
  ExecutorOptions options;
  options.context = 64;
  auto executor = Executor::create((*loaded)->model(), (*loaded)->backend(), options);
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  const Executor::Plan& plan = (*executor)->planned();
  EXPECT_EQ((*loaded)->backend().used(Purpose::kv), plan.kv_bytes);
  EXPECT_EQ((*loaded)->backend().used(Purpose::workspace), plan.workspace_bytes);
  EXPECT_EQ((*loaded)->backend().used(Purpose::staging), plan.staging_bytes);
}

// Prefix hits, pages moved out and back, answers put off and computed again, three answers of one prompt.
TEST(Ranks, AnEngineGivesTheAnswersOfOneRank) {
  CrowdSize size = {.requests = 12, .parallel = 4, .prompt = 40, .tokens = 12, .swap_bytes = 1 << 20};
  std::vector<CrowdAnswers> answers;
  int64_t hits = 0, moved = 0;
  for (const int number : {1, 2, 3}) {
    const int ranks = std::min(number, 2);
    for (const CrowdWay& way : crowd_ways()) {
      if (!way.alone && !way.tight && ranks == 1) continue;
      auto loaded =
          load(test::golden_path("llama-gqa-rope3"), "cpu", ranks, number == 3 ? RankCut::layers : RankCut::outputs);
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      size.kv = DType::f16;
      auto outcome = run_crowd((*loaded)->model(), (*loaded)->backend(), size, way,
                               crowd_requests(size, (*loaded)->vocab(), 3), [](int) {});
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      answers.push_back(outcome->answers);
      EXPECT_EQ(first_difference(answers[0], outcome->answers), -1) << ranks << " ranks, " << way.name;
      if (ranks == 1) continue;
      hits += outcome->metrics.cached_tokens;
      moved += outcome->metrics.second_pages_used;
    }
  }
  EXPECT_GT(hits, 0);
  EXPECT_GT(moved, 0);
}

// On one GPU each rank has a stream of its own.
TEST(Ranks, OnAGpuGiveTheBitsOfOneRank) {
  if (cuda_devices().empty()) GTEST_SKIP() << "this machine has no GPU";
  for (const char* name : {"llama-gqa-rope3", "llama-mqa", "qwen2_moe", "gemma2", "minicpm3", "mamba"})
    expect_same(name, "cuda", DType::f16);
  // Experts and heads whole: pairs go to all from the rank that has the expert.
  for (const char* name : {"qwen2_moe", "glm4_moe", "gemma4_experts", "minicpm3"})
    expect_same(name, "cuda", DType::f16, RankCut::experts);
}

TEST(Ranks, WhatCannotBeIsRefused) {
  const Folder folder = test::golden_path("llama-mha");
  auto gpus = load(folder, "nccl", static_cast<int>(cuda_devices().size()) + 1);  // it wants one for each
  ASSERT_FALSE(gpus.ok());
  EXPECT_NE(gpus.error().message.find("--transport nccl"), std::string::npos) << gpus.error().message;
  EXPECT_FALSE(load(folder, "cpu", kMostRanks + 1).ok());
  // Room for the weights of two ranks, but not for such a cache; and then for a smaller one.
  auto loaded = load(folder, "cpu", 2);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ExecutorOptions options;
  options.context = 32;
  options.pages = 1 << 24;
  (*loaded)->backend().set_limit(64 << 20);
  EXPECT_FALSE(Executor::create((*loaded)->model(), (*loaded)->backend(), options).ok());
  options.pages = 8;
  EXPECT_TRUE(Executor::create((*loaded)->model(), (*loaded)->backend(), options).ok());
}

}  // namespace
}  // namespace millrace
