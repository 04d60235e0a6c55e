// Trained heads on the model they were trained for: the guesses a float32 implementation made of the same prompts, and
// answers that stay the plain ones. The files lie beside the tree; skipped by name where they are absent.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "backend/reference/reference.h"
#include "engine/draft/head.h"
#include "engine/executor.h"
#include "tensor/checkpoint.h"

namespace millrace {
namespace {

const std::filesystem::path kStories = std::filesystem::path(MILLRACE_SOURCE_DIR) / "../shared/models/stories";

std::vector<Token> integers(const Checkpoint& golden, const std::string& name) {
  const StoredTensor* found = golden.find(name);
  if (found == nullptr || found->type != DType::i32) return {};
  std::vector<Token> values(static_cast<size_t>(found->values()));
  std::memcpy(values.data(), found->bytes.data(), found->bytes.size());
  return values;
}

class Heads : public testing::TestWithParam<const char*> {};

TEST_P(Heads, GuessWhatTheReferenceGuessed) {
  const auto folder = kStories / GetParam();
  if (!std::filesystem::exists(folder / "golden.safetensors"))
    GTEST_SKIP() << folder << " is absent: this head was NOT tested";
  const Checkpoint checkpoint = Checkpoint::open(kStories / "target").value();
  auto backend = make_reference_backend();
  const auto model = Model::load(checkpoint, *backend).value();
  const Checkpoint head_file = Checkpoint::open(folder).value();
  ASSERT_TRUE(Head::is_head(head_file));
  const auto head = Head::load(head_file, *model, *backend).value();
  const Checkpoint golden = Checkpoint::open(folder / "golden.safetensors").value();
  auto executor = Executor::create(*model, *backend, {.context = 128, .rows = 128, .kv = DType::f32}).value();
  auto drafter = HeadDrafter::create(*head, *executor, *backend).value();
  ASSERT_TRUE(executor->tap(drafter->taps(), *backend).ok());
  const Sampler sampler = Sampler::create({.temperature = 0}, executor->vocab()).value();
  for (RequestId prompt = 0; prompt < 8; ++prompt) {
    const std::vector<Token> ids = integers(golden, fmt::format("{}.ids", prompt));
    const std::vector<Token> drafts = integers(golden, fmt::format("{}.drafts", prompt));
    ASSERT_GT(ids.size(), 2u);
    ASSERT_EQ(drafts.size(), 5u);
    // The target computes all but the last token, in two steps.
    KvCache cache(executor->layout(), executor->options().pages, 0);
    SequencePages pages = cache.open(0, {});
    const auto all = static_cast<int>(ids.size()) - 1, half = all / 2;
    for (const auto& [begin, end] : {std::pair(0, half), std::pair(half, all)}) {
      ASSERT_TRUE(cache.reserve(pages, begin, end));
      const Chunk chunk{.tokens = std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                        .begin = begin,
                        .tables = pages.tables,
                        .wanted = end == all ? 1 : 0};
      executor->run({&chunk, 1});
      const Observed seen{.request = prompt, .choice = 0, .begin = begin, .streams = executor->tapped()};
      drafter->observe({&seen, 1});
    }
    std::vector<Token> out;
    DraftAsk ask{.request = prompt, .choice = 0};
    ask.tokens = ids;
    ask.limit = 5;
    ask.sampler = &sampler;
    ask.out = &out;
    drafter->propose({&ask, 1});
    EXPECT_EQ(out, drafts) << "prompt " << prompt;
    cache.release(pages);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Heads, testing::Values("mtp", "eagle3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace millrace
