#include "plan/fit.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/reference/reference.h"
#include "engine/executor.h"
#include "model/forward.h"
#include "model/shapes.h"
#include "plan/explain.h"

namespace millrace {
namespace {

ModelSpec small_model() {
  ModelSpec spec = named_shape("stories-14m").value();
  spec.layers.resize(2);
  return spec;
}

// What forward() asks for does not depend on who listens: calls hold the records of trace, in order.
TEST(TimedCalls, HoldWhatTraceRecords) {
  auto backend = make_trace_backend();
  auto model = Model::outline(small_model(), DType::q8_0, *backend).value();
  const PassRows rows = {.begin = 5, .count = 3, .wanted = 1};
  CallOps ops(nullptr);
  run_pass(ops, *model, DType::f16, {&rows, 1});
  const auto records = trace_pass(*model, DType::f16, {&rows, 1});
  ASSERT_EQ(ops.records().size(), records.size());
  size_t next = 0;
  for (const OpCall& call : ops.calls()) {
    EXPECT_EQ(call.first, next);
    next = call.end;
  }
  EXPECT_EQ(next, records.size());
  const auto glu =
      std::find_if(ops.calls().begin(), ops.calls().end(), [](const OpCall& call) { return call.op == "linear_glu"; });
  ASSERT_NE(glu, ops.calls().end());
  EXPECT_EQ(ops.records(*glu).size(), 3u);  // gate, up, and their product
}

// Over a real backend the same numbers come out as without it.
TEST(TimedCalls, ChangeNothing) {
  auto plain = make_reference_backend();
  TimedBackend timed(*plain);
  auto model = Model::random(small_model(), DType::f32, 3, *plain).value();
  auto one = Executor::create(*model, *plain, {.context = 32}).value();
  auto two = Executor::create(*model, timed, {.context = 32}).value();
  const std::vector<Token> tokens = {1, 2, 3, 4, 5};
  auto logits = [&](Executor& executor) {
    KvCache cache(executor.layout(), executor.options().pages, 0);
    SequencePages pages = cache.open(0, {});
    CHECK(cache.reserve(pages, 0, 5), "room");
    const Chunk chunk = {.tokens = tokens, .tables = pages.tables};
    const Tensor out = executor.run({&chunk, 1});
    return std::vector<float>(out.row(0), out.row(0) + out.cols);
  };
  EXPECT_EQ(logits(*one), logits(*two));
  EXPECT_GT(timed.calls()->calls().size(), 10u);
  for (const OpCall& call : timed.calls()->calls()) EXPECT_GE(call.seconds, 0);

  const RequestTimeline timeline = {
      .tokenise = {}, .chosen = {{timed.calls()->now(), 0}}, .end = timed.calls()->now(), .prompt = 5, .answer = 1};
  const Ceilings ceilings = {
      .read_bytes = 1e11, .grouped = 1e12, .f8 = 1e12, .f16 = 1e12, .bf16 = 1e12, .f32 = 1e12, .attend = 1e12};
  count_costs(*timed.calls(), *model, DType::f16);
  const Explanation what = explain(*timed.calls(), timeline, *model, ceilings, 0);
  double phases = 0;
  for (const PhaseShare& phase : what.phases) phases += phase.seconds;
  EXPECT_NEAR(phases, timeline.end, 1e-9);
  ASSERT_EQ(what.layers.size(), 3u);
  for (const LayerShare& layer : what.layers) EXPECT_GT(layer.prefill, 0) << layer.layer;
  auto has = [&](std::string_view name) {
    return std::any_of(what.prefill.begin(), what.prefill.end(), [&](const OpShare& op) { return op.name == name; });
  };
  for (std::string_view name : {"linear attn_output", "linear ffn_down", "linear output", "attend", "linear_glu"})
    EXPECT_TRUE(has(name)) << name;
}

// Points on a line are predicted on that line, and between two numbers of rows somewhere between.
TEST(Growth, FindsTheParabola) {
  std::vector<std::pair<double, double>> points;
  for (double x : {64.0, 128.0, 512.0, 1024.0}) points.emplace_back(x, 0.001 + 2e-5 * x + 3e-8 * x * x);
  const Growth growth = fit_growth(points);
  EXPECT_NEAR(growth.fixed, 0.001, 1e-8);
  EXPECT_NEAR(growth.linear, 2e-5, 1e-10);
  EXPECT_NEAR(growth.square, 3e-8, 1e-13);
  EXPECT_EQ(fit_growth({}).at(3), 0);
}

}  // namespace
}  // namespace millrace
