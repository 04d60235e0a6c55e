// Layers that run one by one give what the whole model gives, bit for bit; what does not fit is refused before it is
// taken.
#include "shrink/walk.h"

#include <cstring>

#include "shrink/heal.h"
#include "shrink/quantise.h"
#include "shrink/rig.h"
#include "shrink/sums.h"

namespace millrace {
namespace {

const StudentOptions kOptions = {.cpu = {.threads = 1}};

ModelSource source_of(const Checkpoint& checkpoint) { return ModelSource::open(checkpoint).value(); }

bool dense(const Slot& slot) { return slot.experts == 0 && slot.layer >= 0; }

void expect_same(const SlotSums& one, const SlotSums& other) {
  EXPECT_EQ(one.counts, other.counts) << one.slot.name;
  const auto numbers = static_cast<size_t>(3 * one.slot.matrices() * one.slot.cols) * sizeof(double);
  EXPECT_EQ(std::memcmp(one.squares, other.squares, numbers), 0) << one.slot.name;
  ASSERT_EQ(one.products == nullptr, other.products == nullptr) << one.slot.name;
  const auto all = static_cast<size_t>(one.slot.cols * one.slot.cols) * sizeof(double);
  if (one.products == nullptr) return;
  EXPECT_EQ(std::memcmp(one.products, other.products, all), 0) << one.slot.name;
}

class Walks : public testing::TestWithParam<const char*> {};

TEST_P(Walks, LayersReadWhatTheyReadInTheWholeModel) {
  const Checkpoint checkpoint = Checkpoint::open(test::golden_folder() / GetParam()).value();
  const ModelSource source = source_of(checkpoint);
  const auto texts = test::token_texts(4, 30, std::min(300, source.spec().vocab));
  Team team(2);
  const Loaded loaded = load_student(source, kOptions).value();
  const auto whole = InputSums::make(*loaded.model, *loaded.backend, team, dense).value();
  ObservedBackend observed(*loaded.backend, *whole);
  auto executor = Executor::create(*loaded.model, observed, scoring_options(texts, source.spec().vocab)).value();
  ASSERT_TRUE(run_pass(*executor, texts, {}).ok());

  auto walk = LayerWalk::make(source.spec(), texts, kOptions).value();
  for (int32_t layer = 0; layer < static_cast<int32_t>(source.spec().layers.size()); ++layer) {
    const auto alone = LoneLayer::load(source, layer, kOptions).value();
    const auto sums = InputSums::make(alone->model(), alone->backend(), team, dense).value();
    alone->watch(sums.get());
    ASSERT_TRUE(walk->run(*alone, {}).ok());
    walk->advance();
    size_t seen = 0;
    for (const SlotSums& each : sums->slots()) {
      if (each.slot.layer != layer) continue;
      ++seen;
      expect_same(each, *whole->find(each.slot.name));
    }
    EXPECT_GT(seen, 0u);
  }
  // Back to the first, and on to the last: the layers in between are run anew.
  const auto last = static_cast<int32_t>(source.spec().layers.size()) - 1;
  ASSERT_TRUE(walk->reach(last, source, {}).ok());
  EXPECT_EQ(walk->layer(), last);
  const auto alone = LoneLayer::load(source, last, kOptions).value();
  const auto sums = InputSums::make(alone->model(), alone->backend(), team, dense).value();
  alone->watch(sums.get());
  ASSERT_TRUE(walk->run(*alone, {}).ok());
  for (const SlotSums& each : sums->slots()) {
    if (each.slot.layer < 0) expect_same(each, *whole->find(each.slot.name));  // the head
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, Walks,
                         testing::Values("llama-gqa-rope3", "qwen2_moe", "gemma3_text", "falcon_h1", "rwkv", "gpt2"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Walk, RefusesModelsThatCarryMoreThanTheStream) {
  const Checkpoint checkpoint = Checkpoint::open(test::golden_folder() / "gemma3n_text").value();
  EXPECT_FALSE(LayerWalk::check(source_of(checkpoint).spec()).ok());
}

TEST(Walk, HealingSumsAreThoseOfWholePasses) {
  const Checkpoint checkpoint = Checkpoint::open(test::golden_folder() / "llama-gqa-rope3").value();
  const ModelSource source = source_of(checkpoint);
  const Loaded teacher = load_student(source, kOptions).value();
  const auto texts = test::token_texts(6, 40, 300);
  const std::vector<int32_t> kept = {0, 2};
  ModelSource less = source;
  ASSERT_TRUE(less.keep_layers(kept).ok());
  const Loaded student = load_student(less, kOptions).value();
  Team team(2);
  auto whole = HealBench::make(team, *teacher.model, *teacher.backend, texts).value();
  auto walked = HealBench::make(team, *teacher.model, *teacher.backend, texts).value();
  ASSERT_TRUE(walked->walk(source, kOptions).ok());
  for (const HealPair& pair : heal_order(less.spec(), kept, 3)) {
    const HealSums one = whole->measure(student, pair, {}).value();
    const HealSums other = walked->measure(less, std::span(&pair, 1), {}).value().front();
    EXPECT_EQ(one.products, other.products) << pair.slot;
    EXPECT_EQ(one.error, other.error) << pair.slot;
    EXPECT_EQ(one.lost, other.lost) << pair.slot;
  }
}

TEST(Walk, WhatDoesNotFitIsRefusedWithTheNumbers) {
  const Checkpoint checkpoint = Checkpoint::open(test::golden_folder() / "llama-gqa-rope3").value();
  const ModelSource source = source_of(checkpoint);
  const auto texts = test::token_texts(6, 40, 300);
  const auto refused = LayerWalk::make(source.spec(), texts, {.cpu = {.threads = 1}, .memory_limit = 1000});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("234 tokens"), std::string::npos) << refused.error().message;
  const auto small = check_room(1000, Curvature::bytes(64), "the curvature of blk.0.attn_q");
  ASSERT_FALSE(small.ok());
  EXPECT_NE(small.error().message.find("80 KiB of at most 1000 B"), std::string::npos) << small.error().message;
  EXPECT_TRUE(check_room(0, int64_t{1} << 60, "anything").ok());
}

}  // namespace
}  // namespace millrace
