#include "eval/needle.h"

#include <gtest/gtest.h>

#include "backend/reference/reference.h"
#include "model/kv_keep.h"
#include "model/shapes.h"

namespace millrace {
namespace {

struct Subject {
  std::unique_ptr<Backend> backend = make_reference_backend();
  std::unique_ptr<Model> model;
  std::unique_ptr<Executor> executor;

  explicit Subject(const KvKeep& keep) {
    ModelSpec spec = named_shape("stories-14m").value();
    spec.layers.resize(1);
    spec.vocab = 64;
    EXPECT_TRUE(forget(spec, keep).ok());
    model = Model::random(spec, DType::f32, 3, *backend).value();
    executor = Executor::create(*model, *backend, {.context = 120, .rows = 16, .wanted = 4, .kv = DType::f32}).value();
  }
};

std::vector<Token> text() {
  std::vector<Token> tokens;
  for (int i = 0; i < 600; ++i) tokens.push_back((i * 7 + i * i * 3 + i / 11) % 64);
  return tokens;
}

const NeedleAsk kAsk = {.length = 120, .depths = 5, .tries = 2, .cue = 4, .answer = 4, .seed = 3};

// A single layer reads nothing but its window and the sinks: a needle outside both cannot show in any bit.
TEST(Needle, WhatIsForgottenCannotBeFound) {
  Subject all({}), some({4, 30});
  const auto before = find_needles(*all.executor, text(), kAsk, {}).value();
  const auto after = find_needles(*some.executor, text(), kAsk, {}).value();
  ASSERT_EQ(before.size(), 6u);
  const double guessed = after.back().surprise;
  EXPECT_FALSE(after.back().planted);
  for (size_t i = 0; i < 5; ++i) {
    const NeedleFound& one = after[i];
    EXPECT_EQ(one.asked, 8) << i;
    EXPECT_TRUE(one.planted);
    if (i == 0) {
      EXPECT_NE(one.surprise, guessed) << "its first tokens are sinks";
    } else if (one.back > 50) {
      EXPECT_EQ(one.surprise, guessed) << one.back;
    }
    EXPECT_NE(before[i].surprise, before.back().surprise) << "everything kept, " << one.back << " back";
  }
  EXPECT_EQ(after[4].back, 8) << "right before the question";
  EXPECT_NE(after[4].surprise, guessed);
}

TEST(Needle, RefusesTextsThatAreTooShort) {
  Subject all({});
  const std::vector<Token> tokens = text();
  EXPECT_FALSE(find_needles(*all.executor, std::span(tokens).first(300), kAsk, {}).ok());
  NeedleAsk ask = kAsk;
  ask.length = 20;
  EXPECT_FALSE(find_needles(*all.executor, tokens, ask, {}).ok());
  EXPECT_EQ(find_needles(*all.executor, tokens, kAsk, [](int64_t) { return false; }).error().code, Code::cancelled);
}

}  // namespace
}  // namespace millrace
