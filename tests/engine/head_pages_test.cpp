// What a head keeps lies in the model's pages: whoever finds a prefix in the cache finds the head's entries of it too,
// to the bit those it would have made itself, and guesses as if it had. A head without room for them is refused with
// the numbers, and one whose numbers are broken guesses nothing and hurts nobody.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/draft/head.h"
#include "engine/made_up_head.h"
#include "engine/pages_rig.h"

namespace millrace {
namespace {

class HeadPages : public testing::TestWithParam<const char*> {};

std::vector<Token> a_prompt(int tokens) {
  std::vector<Token> prompt;
  for (int t = 0; t < tokens; ++t) prompt.push_back((t * t * 7 + t * 37 + 11) % 300 + 5);
  return prompt;
}

// A model with a head.
struct Rig : PagesRig {
  Checkpoint file;
  std::unique_ptr<Head> head;

  explicit Rig(const char* kind, int rows = 64)
      : file(MadeUp(kind).open().value()), head(Head::load(file, *tiny.model, *tiny.backend).value()) {
    make_executor(HeadDrafter::beside(head->spec()), rows, 24);
    drafter = HeadDrafter::create(*head, *executor, *tiny.backend).value();
  }
};

// The first page where two differ; -1: none.
int differ_at(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return at == a.end() && a.size() == b.size() ? -1 : static_cast<int>(at - a.begin());
}

TEST_P(HeadPages, APrefixThatIsFoundBringsTheHeadsEntries) {
  Rig rig(GetParam());
  const std::vector<Token> first = a_prompt(65);
  ASSERT_EQ(rig.begin(first), 0);
  EXPECT_EQ(rig.compute(first, 0, 33), 33);
  EXPECT_EQ(rig.compute(first, 33, 64), 64);
  const auto made = rig.kept(64);
  const std::vector<Token> guessed = rig.guesses(first, 5);
  EXPECT_EQ(guessed.size(), 5u);
  rig.cache->retire(rig.pages, first, 64);

  // The same again, another text that leaves it in the middle of a page, and one that leaves it where a page ends.
  for (const int common : {65, 41, 32}) {
    std::vector<Token> second = first;
    for (size_t t = static_cast<size_t>(common); t < second.size(); ++t) second[t] = second[t] % 300 + 6;
    const int found = rig.begin(second);
    EXPECT_EQ(found, std::min(common, 64) - 1) << common;
    EXPECT_EQ(rig.compute(second, found, 64), 64) << common;
    const auto shared = rig.kept(64);
    const std::vector<Token> with = rig.guesses(second, 5);
    rig.cache->release(rig.pages);

    Identity alone;
    alone.bytes[0] = static_cast<uint8_t>(common);
    ASSERT_EQ(rig.begin(second, alone), 0);
    EXPECT_EQ(rig.compute(second, 0, 64), 64);
    EXPECT_EQ(differ_at(shared, rig.kept(64)), -1) << common;
    EXPECT_EQ(with, rig.guesses(second, 5)) << common;
    rig.cache->release(rig.pages);
    if (common == 65) {
      EXPECT_EQ(differ_at(shared, made), -1);
      EXPECT_EQ(with, guessed);
    }
  }
}

// In small steps, late, with wrong guesses in between: the same entries. What waits is not offered to others.
TEST_P(HeadPages, EntriesAreTheSameHoweverTheyAreMade) {
  Rig whole(GetParam()), bits(GetParam(), 8);
  const std::vector<Token> text = a_prompt(65);
  whole.begin(text);
  whole.compute(text, 0, 64);
  bits.begin(text);
  for (int at = 0; at < 12; at += 4) bits.compute(text, at, at + 4);
  int waiting = 0;
  for (int at = 12; at < 64; ++at) {
    if (at % 5 == 0) {
      EXPECT_FALSE(bits.guesses(std::span(text).first(static_cast<size_t>(at) + 1), 3).empty());
    }
    const int entries = bits.compute(text, at, at + 1, true);
    waiting += entries < at + 1;
    EXPECT_LE(entries, at + 1);
    EXPECT_GE(entries, at + 1 - 16);
  }
  EXPECT_GT(waiting, 10);
  const std::vector<Token> guessed = bits.guesses(text, 4);  // which makes what was waiting
  EXPECT_EQ(guessed, whole.guesses(text, 4));
  EXPECT_EQ(differ_at(bits.kept(65), whole.kept(65)), -1);
}

// Streams are kept for as many answers as run at once; whose were lost guesses again when new ones have come.
TEST_P(HeadPages, LostStreamsCostGuessesOnly) {
  Rig rig(GetParam());
  const std::vector<Token> text = a_prompt(40);
  rig.begin(text);
  rig.compute(text, 0, 30);
  SequencePages own = std::exchange(rig.pages, {});
  for (RequestId other = 100; other < 103; ++other) {
    rig.request = other - 1;
    Identity root;
    root.bytes[0] = static_cast<uint8_t>(other);
    rig.begin(text, root);
    rig.compute(text, 0, 20);
    rig.cache->release(rig.pages);
  }
  rig.pages = std::move(own);
  rig.request = 1;
  EXPECT_TRUE(rig.guesses(std::span(text).first(31), 3).empty());
  EXPECT_EQ(rig.compute(text, 30, 39), 39);
  EXPECT_EQ(rig.guesses(text, 3).size(), 3u);
}

TEST_P(HeadPages, AHeadWithoutRoomIsRefusedWithTheNumbers) {
  Rig probe(GetParam());
  Tiny tiny("llama-gqa-rope3");
  const auto head = Head::load(probe.file, *tiny.model, *tiny.backend).value();
  EngineOptions options = options_for(4, false);
  options.draft = {.make = {}, .most = 4, .steady = true};
  options.draft.make = [&](Executor& target, Backend& backend) { return HeadDrafter::create(*head, target, backend); };
  // A cache that was planned without it.
  const auto unplanned = Engine::create(*tiny.model, *tiny.backend, options);
  ASSERT_FALSE(unplanned.ok());
  EXPECT_NE(unplanned.error().message.find("the cache was planned for 0 key heads"), std::string::npos)
      << unplanned.error().message;
  options.draft.beside = HeadDrafter::beside(head->spec());
  Tiny small("llama-gqa-rope3");
  const auto other = Head::load(probe.file, *small.model, *small.backend).value();
  options.draft.make = [&](Executor& target, Backend& backend) { return HeadDrafter::create(*other, target, backend); };
  int64_t used = 0;
  for (int purpose = 0; purpose < kPurposes; ++purpose) used += small.backend->used(static_cast<Purpose>(purpose));
  small.backend->set_limit(used + (64 << 10));
  const auto refused = Engine::create(*small.model, *small.backend, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::no_memory);
  EXPECT_TRUE(refused.error().message.find_first_of("0123456789") != std::string::npos) << refused.error().message;
}

TEST_P(HeadPages, BrokenNumbersGuessNothingAndChangeNothing) {
  Tiny tiny("llama-gqa-rope3");
  MadeUp made(GetParam());
  for (test::EditedTensor& tensor : made.tensors) {
    if (tensor.name.find("mlp.down_proj") == std::string::npos) continue;
    const float broken = std::numeric_limits<float>::quiet_NaN();
    for (size_t at = 0; at + sizeof broken <= tensor.bytes.size(); at += sizeof broken)
      std::memcpy(tensor.bytes.data() + at, &broken, sizeof broken);
  }
  const Checkpoint file = made.open().value();
  const auto head = Head::load(file, *tiny.model, *tiny.backend).value();
  const std::vector<Request> all = every_kind();
  const Answers plain = run_all(tiny, all, options_for(1, false)).answers;
  EngineOptions options = options_for(4, true);
  options.draft = {.make = {}, .most = 4, .steady = true};
  options.draft.beside = HeadDrafter::beside(head->spec());
  options.draft.make = [&](Executor& target, Backend& backend) { return HeadDrafter::create(*head, target, backend); };
  const Outcome outcome = run_all(tiny, all, options);
  EXPECT_TRUE(outcome.answers == plain);
  EXPECT_EQ(outcome.metrics.drafted_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, HeadPages, testing::Values("mtp", "eagle3"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace millrace
