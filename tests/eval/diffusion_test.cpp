// A model that fills masks in a crowd: requests at different passes, in both modes, share steps, and every answer has
// the tokens it has alone.
#include <gtest/gtest.h>

#include "backend/cpu/cpu.h"
#include "engine/parts.h"
#include "eval/crowd_check.h"
#include "eval/fill_quality.h"

namespace millrace {
namespace {

ModelSpec tiny(bool shifted) {
  ModelSpec spec = {.architecture = "llama", .vocab = 320, .width = 64, .context = 256};
  const NormSpec norm;
  const GqaSpec gqa = {.heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0.25f, .causal = false};
  spec.layers.assign(2, {.mixer = gqa, .ffn = DenseSpec{.width = 96}, .mixer_norm = norm, .ffn_norm = norm});
  spec.final_norm = norm;
  spec.tied = true;
  spec.fill = {.mask = 6, .shifted = shifted};
  return spec;
}

CrowdOutcome answered(const CrowdWay& way, bool shifted, bool other_prompt = false) {
  const CrowdSize size = {.requests = 20, .parallel = 6, .prompt = 40, .tokens = 24, .kv = DType::f16};
  const auto backend = make_cpu_backend({.threads = 2}).value();
  const auto model = Model::random(tiny(shifted), DType::f32, 3, *backend).value();
  std::vector<Request> requests = crowd_requests(size, model->spec().vocab, 5);
  for (Request& request : requests)
    if (other_prompt) request.prompt.back() = (request.prompt.back() + 100) % 320;
  auto outcome = run_crowd(*model, *backend, size, way, std::move(requests), [](int) {});
  EXPECT_TRUE(outcome.ok()) << (outcome.ok() ? "" : outcome.error().message);
  return outcome.ok() ? std::move(*outcome) : CrowdOutcome{};
}

TEST(DiffusionCrowd, EveryWayGivesTheSameAnswers) {
  for (const bool shifted : {false, true}) {
    const std::vector<CrowdWay> ways = crowd_ways();
    const CrowdOutcome expected = answered(ways[0], shifted);
    EXPECT_GT(expected.answers.size(), 20u);  // some give three
    EXPECT_GT(expected.metrics.fill_passes, 0);
    for (size_t i = 1; i < ways.size(); ++i) {
      const CrowdOutcome found = answered(ways[i], shifted);
      EXPECT_EQ(first_difference(expected.answers, found.answers), -1) << ways[i].name;
      EXPECT_LT(found.metrics.steps, expected.metrics.steps) << ways[i].name;  // passes share steps
      EXPECT_EQ(found.metrics.cached_tokens, 0);                               // nothing is shared but steps
    }
    EXPECT_NE(first_difference(expected.answers, answered(ways[1], shifted, true).answers), -1);
  }
}

// Answers of requests in the order they were submitted: the second comes after so many steps and goes first.
std::vector<std::vector<Token>> in_turn(const FillAsk& ask, int second_after, Metrics& metrics) {
  const auto backend = make_cpu_backend({.threads = 1}).value();
  const auto model = Model::random(tiny(false), DType::f32, 3, *backend).value();
  EngineOptions options;
  options.executor.context = 64;
  options.limits.max_sequences = 1;
  options.policy = "priority";
  EngineParts parts = EngineParts::create(*model, *backend, options).value();
  std::vector<std::vector<Token>> answers(2);
  std::map<RequestId, size_t> places;
  auto submit = [&](size_t place) {
    Request request;
    request.prompt = {1, static_cast<Token>(50 + place), 9};
    request.max_tokens = 24;
    request.sampling.temperature = 0;
    request.fill = ask;
    request.priority = static_cast<int>(place);
    places[parts.scheduler->submit(std::move(request), static_cast<double>(place)).value()] = place;
  };
  submit(0);
  Launch launch;
  Sampled sampled;
  for (int step = 0; !parts.scheduler->idle() || places.size() < 2; ++step) {
    if (step == second_after) submit(1);
    const StepPlan plan = parts.scheduler->next(step);
    launch.take(plan);
    parts.runner->run(launch, sampled);
    for (const Event& event : parts.scheduler->commit(plan, sampled, step)) {
      EXPECT_FALSE(event.error) << (event.error ? event.error->message : "");
      if (event.token) answers[places.at(event.request)].push_back(*event.token);
    }
    EXPECT_TRUE(parts.scheduler->check().ok());
    if (step > 500) break;
  }
  metrics = parts.scheduler->metrics();
  EXPECT_EQ(metrics.pages_used, 0);
  return answers;
}

TEST(DiffusionCrowd, WhoIsPutOffGoesOnWithTheSameTokens) {
  for (const FillAsk& ask : {FillAsk{.steps = 12}, FillAsk{.steps = 12, .block = 6}}) {
    Metrics metrics;
    const auto alone = in_turn(ask, 400, metrics);
    EXPECT_EQ(metrics.preemptions, 0);
    EXPECT_EQ(alone[0].size(), 24u);
    for (const int after : {1, 5, 9}) {
      EXPECT_EQ(in_turn(ask, after, metrics), alone);
      EXPECT_EQ(metrics.preemptions, 1);
    }
  }
}

TEST(FillQuality, ExactComparesNothingAndLargeBlocksAreNearer) {
  const auto backend = make_cpu_backend({.threads = 1}).value();
  const auto model = Model::random(tiny(false), DType::f32, 3, *backend).value();
  const std::vector<std::vector<Token>> prompts = {{1, 5, 9}, {1, 30, 31, 32}};
  const auto executor = filling_executor(*model, *backend, 4, 16, DType::f32).value();
  const auto other = filling_executor(*model, *backend, 4, 16, DType::f32).value();
  const FillQuality whole = measure_filling(*executor, *other, prompts, 16, {.steps = 4}, {}).value();
  EXPECT_EQ(whole.passes, 8);
  EXPECT_EQ(whole.tokens, 32);
  EXPECT_EQ(whole.frozen.rows, 0);
  const FillQuality blocks = measure_filling(*executor, *other, prompts, 16, {.steps = 4, .block = 4}, {}).value();
  EXPECT_EQ(blocks.passes, 8);
  EXPECT_GT(blocks.frozen.rows, 0);
  EXPECT_GT(blocks.frozen.kl_mean(), 0);
  EXPECT_TRUE(blocks.frozen.finite);
  // One block over the whole answer keeps the prompt as it was alone, and nothing else.
  const FillQuality one = measure_filling(*executor, *other, prompts, 16, {.steps = 4, .block = 16}, {}).value();
  EXPECT_LT(one.frozen.kl_mean(), blocks.frozen.kl_mean());
}

}  // namespace
}  // namespace millrace
