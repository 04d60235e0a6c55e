// What is planned for ranks is what ranks take and send.
#include "plan/ranks.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "backend/cpu/cpu.h"
#include "bench/step.h"
#include "model/shapes.h"
#include "session/ranked.h"

namespace millrace {
namespace {

ModelSpec small_shape(std::string_view name) {
  ModelSpec spec = named_shape(name).value();
  spec.layers.resize(std::min<size_t>(spec.layers.size(), 4));
  spec.vocab = 512;
  return spec;
}

constexpr ExecutorOptions kOptions = {.context = 64, .rows = 32, .sequences = 2};

RanksPlanner planner_of(const ModelSpec& spec, const Backend& like, int ranks, RankCut cut) {
  auto planner = RanksPlanner::create(spec, [](const Slot&) { return DType::q8_0; }, &like,
                                      {.ranks = ranks, .cut = cut, .here = ranks});
  EXPECT_TRUE(planner.ok()) << planner.error().message;
  return std::move(*planner);
}

void expect_as_planned(const ModelSpec& spec, int ranks, RankCut cut) {
  auto like = make_cpu_backend({.threads = 1}).value();
  const RanksPlanner planner = planner_of(spec, *like, ranks, cut);
  const std::vector<MemoryPlan> plans = planner.memory(kOptions).value();
  const bool layers = cut == RankCut::layers;
  auto ranked = Ranked::open({.cpu = {.threads = layers ? 1 : ranks}, .ranks = ranks, .cut = cut},
                             [&](Backend& backend) { return Model::random(spec, DType::q8_0, 1, backend); });
  ASSERT_TRUE(ranked.ok()) << ranked.error().message;
  auto executor = Executor::create((*ranked)->model(), (*ranked)->backend(), kOptions);
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  const std::vector<Ranked::Held> held = (*ranked)->held();
  ASSERT_EQ(held.size(), plans.size());
  for (size_t r = 0; r < held.size(); ++r) {
    EXPECT_EQ(held[r].weights, plans[r].weights) << "rank " << r << " of " << ranks;
    EXPECT_EQ(held[r].kv, plans[r].kv) << "rank " << r << " of " << ranks;
  }
  EXPECT_EQ((*ranked)->backend().used(Purpose::workspace), plans[0].workspace);
  EXPECT_EQ((*ranked)->backend().used(Purpose::staging), plans[0].staging);

  // One prompt in two steps, the second with logits; then two sequences together.
  const Machine nominal = {.read_bytes = 1, .f32_operations = 1};
  const std::vector<PassRows> begin = {{.count = 32, .wanted = 0}}, end = {{.begin = 32, .count = 8}};
  const std::vector<PassRows> pair = {{}, {}};
  struct Asked {
    StepTest test;
    std::vector<std::vector<PassRows>> passes;
  };
  for (const Asked& asked : {Asked{{.prompt = 40}, {begin, end}}, Asked{{.generated = 1, .sequences = 2}, {pair}}}) {
    int64_t least = 0, most = 0;
    for (const auto& rows : asked.passes) {
      const RankCount count = planner.count(0, kOptions.kv, rows);
      least += count.sent, most += count.sent + count.embedded;
      EXPECT_GT(count.exchanges, layers ? 1 : 4);
    }
    const int64_t before = (*ranked)->sent();
    ASSERT_TRUE(run_step_test(**executor, asked.test, nominal, {.repetitions = 1, .warm_up = false}).ok());
    const int64_t sent = (*ranked)->sent() - before;
    EXPECT_GE(sent, least) << asked.test.name();
    EXPECT_LE(sent, most) << asked.test.name();
    if (layers) {
      EXPECT_EQ(least, most);
    }
  }
}

// Dense with shared heads, experts, heads that do not divide.
TEST(PlannedRanks, TakeAndSendWhatIsPlanned) {
  for (const std::string_view name : {"stories-14m", "mixtral-8x7b", "smollm2-135m"}) {
    ModelSpec spec = small_shape(name);
    if (name == "mixtral-8x7b") {
      spec.layers.resize(1);
      std::get<MoeSpec>(spec.layers[0].ffn).width = 256;
    }
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(fmt::format("{} on {} ranks", name, ranks));
      expect_as_planned(spec, ranks, RankCut::outputs);
    }
  }
}

// Three ranks have two or three of eight experts each.
TEST(PlannedRanks, OfWholeExpertsTakeAndSendWhatIsPlanned) {
  ModelSpec spec = small_shape("mixtral-8x7b");
  spec.layers.resize(1);
  std::get<MoeSpec>(spec.layers[0].ffn).width = 256;
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    expect_as_planned(spec, ranks, RankCut::experts);
  }
}

TEST(PlannedRanks, OfLayersTakeAndSendWhatIsPlanned) {
  for (const int ranks : {2, 4}) expect_as_planned(small_shape("stories-14m"), ranks, RankCut::layers);
}

// All ranks together hold and read the model once, and what a rank holds and takes falls with their number.
TEST(PlannedRanks, PartTheWork) {
  const ModelSpec spec = small_shape("stories-14m");
  auto like = make_cpu_backend({.threads = 1}).value();
  const Ceilings ceilings = {
      .read_bytes = 1e10, .grouped = 1e12, .f8 = 1e11, .f16 = 1e11, .bf16 = 1e11, .f32 = 1e11, .attend = 1e11};
  const std::vector<PassRows> step = {{.begin = 40}};
  const Link free = {}, slow = {.seconds = 1e-3, .bytes = 1e6};
  auto one = RanksPlanner::create(spec, [](const Slot&) { return DType::q8_0; }, like.get(), {.ranks = 1}).value();
  auto two = RanksPlanner::create(spec, [](const Slot&) { return DType::q8_0; }, like.get(), {.ranks = 2}).value();
  const RanksPass alone = one.pass(DType::f16, step, ceilings, slow), both = two.pass(DType::f16, step, ceilings, slow);
  EXPECT_EQ(alone.link_seconds, 0);
  EXPECT_EQ(alone.sent, 0);
  EXPECT_LT(both.floor.seconds, 0.6 * alone.floor.seconds);
  EXPECT_GT(both.floor.seconds, 0.4 * alone.floor.seconds);
  EXPECT_DOUBLE_EQ(both.link_seconds, both.exchanges * slow.seconds + both.moved / slow.bytes);
  EXPECT_EQ(two.pass(DType::f16, step, ceilings, free).link_seconds, 0);
  // Sharing one machine halves what each has of it.
  auto here = planner_of(spec, *like, 2, RankCut::outputs);
  EXPECT_DOUBLE_EQ(here.pass(DType::f16, step, ceilings, free).floor.seconds, 2 * both.floor.seconds);
}

TEST(PlannedRanks, WhatRanksRefuseIsNotPlanned) {
  auto like = make_cpu_backend({.threads = 1}).value();
  auto more = RanksPlanner::create(small_shape("stories-14m"), [](const Slot&) { return DType::q8_0; }, like.get(),
                                   {.ranks = 5, .cut = RankCut::layers});
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.error().message.find("4 layers on 5 ranks"), std::string::npos) << more.error().message;
}

TEST(Links, AreMeasured) {
  const Link link = measure_thread_link(2);
  EXPECT_GT(link.seconds, 0);
  EXPECT_GT(link.bytes, 0);
  EXPECT_DOUBLE_EQ((Link{.seconds = 2, .bytes = 4}.of(3, 8)), 8);
  const std::vector<std::shared_ptr<Comm>> comms = make_thread_comms(3);
  std::vector<int> here(3);
  std::vector<std::thread> ranks;
  for (size_t r = 0; r < 3; ++r) ranks.emplace_back([&, r] { here[r] = ranks_here(*comms[r]); });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(here, std::vector<int>(3, 3));
}

}  // namespace
}  // namespace millrace
