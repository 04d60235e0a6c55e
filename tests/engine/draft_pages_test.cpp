// What a draft model keeps lies in the target's pages: whoever finds a prefix in the cache finds the draft model's part
// of it too, to the bit what it would have computed itself, however it was computed: in prompts, late, or as a guess
// that was right. A model with states keeps a store of its own.
#include <gtest/gtest.h>

#include "engine/draft/model.h"
#include "engine/pages_rig.h"

namespace millrace {
namespace {

std::vector<Token> a_text(int tokens) {
  std::vector<Token> text;
  for (int t = 0; t < tokens; ++t) text.push_back((t * t * 5 + t * 31 + 7) % 300 + 5);
  return text;
}

// A model that guesses for another one of the same vocabulary.
struct Rig : PagesRig {
  std::unique_ptr<Model> small;

  explicit Rig(int window = 0, int rows = 64) {
    ModelSpec spec = tiny.model->spec();
    spec.layers.resize(2);
    for (LayerSpec& layer : spec.layers) {
      auto& attention = std::get<GqaSpec>(layer.mixer);
      attention.kv_heads = 1;  // less a token than the target's layers have
      attention.window = window;
    }
    small = Model::random(spec, DType::f32, 3, *tiny.backend).value();
    make_executor(ModelDrafter::beside(small->spec()), rows, 64);
    drafter = ModelDrafter::create(*small, *executor, *tiny.backend).value();
  }
};

TEST(DraftPages, APrefixThatIsFoundBringsTheDraftModelsPart) {
  for (const int window : {0, 24}) {
    Rig rig(window);
    const std::vector<Token> first = a_text(97);
    ASSERT_EQ(rig.begin(first), 0);
    EXPECT_EQ(rig.compute(first, 0, 33), 33);
    EXPECT_EQ(rig.compute(first, 33, 96), 96);
    const std::vector<Token> guessed = rig.guesses(first, 5);
    EXPECT_EQ(guessed.size(), 5u);
    rig.cache->retire(rig.pages, first, 96);
    const int node = rig.executor->layout().node_tokens;
    for (const int common : {97, 70}) {
      std::vector<Token> second = first;
      for (size_t t = static_cast<size_t>(common); t < second.size(); ++t) second[t] = second[t] % 300 + 6;
      const int found = rig.begin(second);
      EXPECT_GE(found, window > 0 ? 0 : (common - 1) / node * node) << common;  // a window has left what is before
      EXPECT_EQ(rig.compute(second, found, 96), 96) << common;
      const auto shared = rig.kept(96);
      const std::vector<Token> with = rig.guesses(second, 5);
      rig.cache->release(rig.pages);
      Identity alone;
      alone.bytes[0] = static_cast<uint8_t>(common);
      ASSERT_EQ(rig.begin(second, alone), 0);
      EXPECT_EQ(rig.compute(second, 0, 96), 96);
      EXPECT_TRUE(window > 0 || shared == rig.kept(96)) << common;
      EXPECT_EQ(with, rig.guesses(second, 5)) << common;
      rig.cache->release(rig.pages);
    }
  }
}

// In small steps, late, with guesses in between, wrong ones and right ones.
TEST(DraftPages, WhatIsKeptIsTheSameHoweverItIsMade) {
  Rig whole, bits(0, 8);
  std::vector<Token> text = a_text(20);
  whole.begin(text);
  whole.compute(text, 0, 19);
  while (text.size() < 65) {  // what the draft model itself would say, but for every third token
    const std::vector<Token> more = whole.guesses(text, 2);
    ASSERT_EQ(more.size(), 2u);
    text.insert(text.end(), more.begin(), more.end());
    text.push_back(static_cast<Token>(text.size() % 300));
    whole.compute(text, static_cast<int>(text.size()) - 4, static_cast<int>(text.size()) - 1);
  }
  const auto size = static_cast<int>(text.size());
  bits.begin(text);
  for (int at = 0; at < 16; at += 4) bits.compute(text, at, at + 4);
  int waiting = 0;
  for (int at = 16; at < size - 1; ++at) {
    const auto known = std::span(text).first(static_cast<size_t>(at) + 1);
    if (at % 9 == 0) {
      EXPECT_FALSE(bits.guesses(known, 3).empty());
    }
    const int entries = bits.compute(text, at, at + 1, true);
    waiting += entries < at + 1;
    EXPECT_LE(entries, at + 1);
    EXPECT_GE(entries, at + 1 - 32);
  }
  EXPECT_GT(waiting, 10);
  EXPECT_EQ(bits.guesses(text, 4), whole.guesses(text, 4));
  EXPECT_TRUE(bits.kept(size - 1) == whole.kept(size - 1));
}

TEST(DraftPages, LayersThatWereNotPlannedAreRefused) {
  Rig rig;
  Tiny other("llama-gqa-rope3");
  EngineOptions options = options_for(2, false);
  options.draft.make = [&](Executor& target, Backend& backend) {
    return ModelDrafter::create(*rig.small, target, backend);
  };
  const auto refused = Engine::create(*other.model, *other.backend, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("the cache was planned for 0 key heads"), std::string::npos)
      << refused.error().message;
}

// A draft model whose layers are smaller than the target's, far too few pages, choices, prompts that begin alike.
TEST(DraftPages, AnswersAreThePlainOnesAndPrefixesAreFound) {
  Rig rig;
  const std::vector<Request> all = every_kind();
  const Answers plain = run_all(rig.tiny, all, options_for(1, false)).answers;
  for (const bool steady : {false, true}) {
    EngineOptions options = options_for(8, true);
    options.executor.pages = 40;
    options.draft = {.make = {}, .most = 4, .steady = steady};
    options.draft.beside = ModelDrafter::beside(rig.small->spec());
    options.draft.make = [&](Executor& target, Backend& backend) {
      return ModelDrafter::create(*rig.small, target, backend);
    };
    const Outcome outcome = run_all(rig.tiny, all, options);
    EXPECT_TRUE(outcome.answers == plain) << steady;
  }
}

}  // namespace
}  // namespace millrace
