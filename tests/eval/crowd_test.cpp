// The check of crowds itself: with a tiny model every way gives the same answers and is really what it says it is, and
// another prompt shows.
#include "eval/crowd_check.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu.h"
#include "tensor/checkpoint.h"

namespace millrace {
namespace {

const CrowdSize kSize = {
    .requests = 24, .parallel = 8, .prompt = 64, .tokens = 24, .swap_bytes = 1 << 20, .kv = DType::f16};

CrowdOutcome answered(const CrowdWay& way, bool other_prompt = false, KvForm kv = DType::f16, KvKeep keep = {}) {
  CrowdSize size = kSize;
  size.kv = kv;
  const auto path = std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/model/golden/llama-gqa-rope3";
  const Checkpoint checkpoint = Checkpoint::open(path).value();
  const auto backend = make_cpu_backend({.threads = 2}).value();
  const auto model = Model::load(checkpoint, *backend, {.forget = keep}).value();
  std::vector<Request> requests = crowd_requests(kSize, model->spec().vocab, 5);
  if (other_prompt) requests[7].prompt.back() ^= 1;
  int heard = 0;
  auto outcome = run_crowd(*model, *backend, size, way, std::move(requests), [&](int count) { heard = count; });
  EXPECT_TRUE(outcome.ok());
  EXPECT_EQ(heard, kSize.requests) << way.name;
  return std::move(*outcome);
}

TEST(CrowdCheck, EveryWayGivesTheSameAnswers) {
  const std::vector<CrowdWay> ways = crowd_ways();
  const CrowdOutcome expected = answered(ways[0]);
  EXPECT_GT(expected.answers.size(), static_cast<size_t>(kSize.requests));  // some give three
  EXPECT_EQ(expected.metrics.preemptions, 0);
  for (size_t i = 1; i < ways.size(); ++i) {
    const CrowdOutcome found = answered(ways[i]);
    EXPECT_EQ(first_difference(expected.answers, found.answers), -1) << ways[i].name;
    EXPECT_LT(found.metrics.steps, expected.metrics.steps) << ways[i].name;
    EXPECT_GT(found.metrics.cached_tokens, expected.metrics.cached_tokens) << ways[i].name;
    if (ways[i].tight) {
      EXPECT_GT(found.metrics.preemptions, 0) << ways[i].name;
    }
    EXPECT_EQ(found.metrics.second_pages_used > 0, ways[i].swaps) << ways[i].name;
  }
}

// Factors of eight-bit caches go with their pages: shared, copied and moved out.
TEST(CrowdCheck, SmallCachesToo) {
  for (const KvForm& kv : {KvForm(DType::i8), KvForm(DType::f8_e4m3, DType::f16, true)}) {
    const std::vector<CrowdWay> ways = crowd_ways();
    const CrowdOutcome expected = answered(ways[0], false, kv);
    for (size_t i = 1; i < ways.size(); ++i)
      EXPECT_EQ(first_difference(expected.answers, answered(ways[i], false, kv).answers), -1) << ways[i].name;
  }
}

// A cache that forgets: what is found, copied, moved out and computed again has lost the same tokens.
TEST(CrowdCheck, CachesThatForgetToo) {
  const std::vector<CrowdWay> ways = crowd_ways();
  for (const KvKeep& keep : {KvKeep{3, 21}, KvKeep{3, 21, {1}}}) {  // all layers, and one beside others that do not
    const CrowdOutcome expected = answered(ways[0], false, DType::f16, keep);
    EXPECT_NE(first_difference(expected.answers, answered(ways[0]).answers), -1) << "it forgets something";
    for (size_t i = 1; i < ways.size(); ++i) {
      const CrowdOutcome found = answered(ways[i], false, DType::f16, keep);
      EXPECT_EQ(first_difference(expected.answers, found.answers), -1) << keep.name() << ", " << ways[i].name;
      EXPECT_GT(found.metrics.cached_tokens, 0) << ways[i].name;
    }
  }
}

TEST(CrowdCheck, AnotherPromptShows) {
  const CrowdWay together = crowd_ways()[1];
  const CrowdOutcome expected = answered(together), found = answered(together, true);
  EXPECT_EQ(first_difference(expected.answers, found.answers), 7);
  CrowdAnswers fewer = expected.answers;
  fewer.erase(fewer.begin());
  EXPECT_EQ(first_difference(expected.answers, fewer), 0);
  EXPECT_EQ(first_difference(fewer, expected.answers), 0);
}

}  // namespace
}  // namespace millrace
