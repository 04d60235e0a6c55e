#include "plan/capacity.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu.h"
#include "model/convert.h"
#include "model/shapes.h"

namespace millrace {
namespace {

// A plan made without taking anything, and what a model and an executor then take, purpose by purpose.
TEST(Planner, MemoryIsWhatTheExecutorTakes) {
  for (std::string_view name : {"stories-14m", "gemma-3-1b", "gpt2"}) {
    ModelSpec spec = named_shape(name).value();
    spec.layers.resize(2);
    spec.vocab = 512;
    auto backend = make_cpu_backend({.threads = 2}).value();
    auto trace = make_trace_backend(backend.get());
    auto outline = Model::outline(spec, DType::q8_0, *trace).value();
    Hardware hardware = find_hardware("epyc").value();
    hardware.reserve = 0;
    Planner planner = Planner::create(*outline, *trace, hardware, {.chunk = 64}).value();
    const MemoryPlan plan = planner.memory(3, 96).value();

    auto model = Model::random(spec, DType::q8_0, 1, *backend).value();
    auto executor = Executor::create(*model, *backend, {.context = 96, .rows = 64, .sequences = 3}).value();
    EXPECT_EQ(plan.weights, backend->used(Purpose::weights)) << name;
    EXPECT_EQ(plan.kv, backend->used(Purpose::kv)) << name;
    EXPECT_EQ(plan.workspace, backend->used(Purpose::workspace)) << name;
    EXPECT_EQ(plan.staging, backend->used(Purpose::staging)) << name;
  }
}

TEST(Planner, BadSizesAreRefused) {
  auto trace = make_trace_backend();
  auto model = Model::outline(named_shape("llama-3.2-1b").value(), DType::bf16, *trace).value();
  Planner planner = Planner::create(*model, *trace, find_hardware("rtx4090").value(), {}).value();
  EXPECT_FALSE(planner.memory(0, 16).ok());
  EXPECT_FALSE(planner.memory(-1, 16).ok());
  EXPECT_FALSE(planner.memory(1, 0).ok());
  EXPECT_FALSE(planner.memory(1 << 20, 16).ok());
  EXPECT_FALSE(Planner::create(*model, *trace, find_hardware("rtx4090").value(), {.chunk = 0}).ok());
  EXPECT_FALSE(Planner::create(*model, *trace, find_hardware("spr").value(), {.ranks = 2}).ok());
  EXPECT_FALSE(kv_bytes(model->spec(), DType::f16, 1, 0).ok());
  EXPECT_FALSE(with_kv_heads(model->spec(), 0).ok());
  EXPECT_FALSE(with_kv_heads(model->spec(), 5).ok());
}

// Fewer bits of keys and values are fewer bytes in the same ratio, and read faster.
TEST(Planner, FewerBitsFitMore) {
  auto trace = make_trace_backend();
  auto model = Model::outline(named_shape("llama-3.1-8b").value(), DType::bf16, *trace).value();
  const Hardware hardware = find_hardware("rtx4090").value();
  Planner half = Planner::create(*model, *trace, hardware, {}).value();
  Planner byte = Planner::create(*model, *trace, hardware, {.kv = DType::q4_0}).value();
  EXPECT_EQ(byte.memory(4, 1024)->kv * 32, half.memory(4, 1024)->kv * 9);  // 18 bytes of 32 numbers, not 64
  EXPECT_GT(byte.sequences_that_fit(4096).value(), half.sequences_that_fit(4096).value());
  EXPECT_LT(byte.decode(8, 4096).seconds(), half.decode(8, 4096).seconds());
}

// Weights and cache are read once however many tokens of a sequence are checked; only computing grows.
TEST(Planner, CheckingGuessesCostsLittleWhileMemoryBinds) {
  auto trace = make_trace_backend();
  auto model = Model::outline(named_shape("llama-3.1-8b").value(), DType::bf16, *trace).value();
  Planner planner = Planner::create(*model, *trace, find_hardware("h100").value(), {}).value();
  const double plain = planner.decode(1, 1024).seconds();
  EXPECT_DOUBLE_EQ(planner.check(1, 1, 1024).seconds(), plain);
  EXPECT_GE(planner.check(1, 5, 1024).seconds(), plain);
  EXPECT_LT(planner.check(1, 5, 1024).seconds(), 1.02 * plain);
  EXPECT_GT(planner.check(512, 5, 1024).seconds(), 1.5 * planner.decode(512, 1024).seconds());
}

TEST(Planner, TheFrontierRisesUntilMemoryEnds) {
  auto trace = make_trace_backend();
  auto model = Model::outline(named_shape("llama-3.1-8b").value(), DType::bf16, *trace).value();
  Planner planner = Planner::create(*model, *trace, find_hardware("h100").value(), {}).value();
  const auto points = planner.frontier(1024, 256).value();
  ASSERT_GT(points.size(), 4u);
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_GT(points[i].batch, points[i - 1].batch);
    EXPECT_GE(points[i].token, points[i - 1].token);
    EXPECT_GT(points[i].decode_rate, points[i - 1].decode_rate);
    EXPECT_LT(points[i].served_rate, points[i].decode_rate);
  }
  EXPECT_TRUE(points.back().memory.fits());
  EXPECT_EQ(points.back().batch, planner.sequences_that_fit(1280).value());
  EXPECT_GT(planner.context_that_fits(1).value(), 100000);
}

}  // namespace
}  // namespace millrace
