// Guessing ahead: the index against searching by hand, the control against brute force and in a simulated world, and a
// real (tiny) model whose answers must be the same tokens with every drafter, sampler and crowd.
#include <gtest/gtest.h>

#include <future>
#include <random>

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "base/sanitized.h"
#include "engine/apart.h"
#include "engine/draft/control.h"
#include "engine/draft/model.h"
#include "engine/draft/replay.h"
#include "engine/draft/suffix.h"
#include "engine/draft_rig.h"
#include "engine/engine.h"
#include "tensor/checkpoint.h"

namespace millrace {
namespace {

// An index in memory of its own.
struct OwnIndex {
  explicit OwnIndex(int32_t room)
      : memory(static_cast<size_t>(room * SuffixIndex::kTokenBytes)), index(memory.data(), room) {}
  std::vector<std::byte> memory;
  SuffixIndex index;
};

// The longest end of `read` that occurs in `text`.
int longest_end(std::span<const Token> text, std::span<const Token> read) {
  for (size_t length = std::min(text.size(), read.size()); length > 0; --length) {
    const auto end = read.last(length);
    if (std::search(text.begin(), text.end(), end.begin(), end.end()) != text.end()) return static_cast<int>(length);
  }
  return 0;
}

TEST(SuffixIndex, FindsWhatSearchingFinds) {
  for (int round = 0; round < 30; ++round) {
    std::mt19937 random(static_cast<unsigned>(round));
    const Token letters = 2 + round % 5;
    OwnIndex room(128);
    SuffixIndex& index = room.index;
    SuffixIndex::Match own, other;
    std::vector<Token> read;
    for (int i = 0; i < 120; ++i) {
      const auto token = static_cast<Token>(random() % static_cast<unsigned>(letters));
      const std::vector<Token> text(index.text().begin(), index.text().end());
      std::vector<Token> with = text;
      with.push_back(token);
      own = index.read(own, token);
      ASSERT_EQ(own.length, longest_end(text, with));
      if (own.length > 0) {  // what is there is what was read
        const int after = index.after(own);
        ASSERT_TRUE(std::equal(with.end() - own.length, with.end(), text.begin() + after - own.length));
      }
      index.add(token);
      own = index.settled(own);
      other = index.settled(other);
      // Somebody else reads along, mostly in step.
      read.push_back(random() % 4 == 0 ? static_cast<Token>(random() % 7) : token);
      other = index.read(other, read.back());
      ASSERT_EQ(other.length, longest_end(index.text(), read)) << round << " " << i;
    }
  }
}

// Texts that need the most states and edges for their length, and others: none leaves its memory.
TEST(SuffixIndex, FillsItsRoomAndNoMore) {
  for (const int letters : {1, 2, 3, 50, 4096}) {
    const int32_t room = 1024;
    std::vector<std::byte> memory(static_cast<size_t>(room * SuffixIndex::kTokenBytes) + 64, std::byte{0x5a});
    SuffixIndex index(memory.data(), room);
    std::mt19937 random(1);
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; !index.full(); ++i) {
        // abbb...: the most states. abbb...bc: the most edges.
        const bool worst = letters == 3 && round < 2;
        index.add(worst ? i == 0                        ? 0
                          : i + 1 == room && round == 1 ? 2
                                                        : 1
                        : static_cast<Token>(random() % static_cast<unsigned>(letters)));
      }
      EXPECT_EQ(index.size(), room);
      EXPECT_TRUE(std::all_of(memory.end() - 64, memory.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
      index.clear();
      EXPECT_EQ(index.size(), 0);
    }
  }
  const SuffixIndex none;
  EXPECT_TRUE(none.full());
  EXPECT_EQ(none.read({}, 3).length, 0);
}

// A drafter in memory of its own, with room for so many tokens of each of two answers and of a root.
struct OwnDrafter {
  explicit OwnDrafter(const SuffixOptions& options, int32_t answer = 256, int32_t earlier = 256)
      : rooms{.answer = answer,
              .earlier = options.earlier ? earlier : 0,
              .answers = 2,
              .roots = options.earlier ? static_cast<int32_t>(options.roots) : 0},
        memory(static_cast<size_t>(rooms.bytes())),
        drafter(options, rooms, memory.data()) {}
  void propose(std::span<const DraftAsk> asks) { drafter.propose(asks); }
  void forget(RequestId request) { drafter.forget(request); }
  SuffixDrafter::Rooms rooms;
  std::vector<std::byte> memory;
  SuffixDrafter drafter;
};

struct Asked {
  std::vector<Token> tokens, prediction, out;
  DraftAsk ask(RequestId id, int prompt, int limit, uint8_t root = 0) {
    out.clear();
    DraftAsk made{.request = id, .prompt = prompt, .limit = limit};
    made.tokens = tokens;
    made.prediction = prediction;
    made.out = &out;
    made.root.bytes[0] = root;
    return made;
  }
};

TEST(SuffixDrafter, RepeatsThePromptAndThePrediction) {
  OwnDrafter drafter({});
  Asked a{.tokens = {1, 2, 3, 4, 5, 6, 2, 3}};
  DraftAsk ask = a.ask(1, 6, 4);
  drafter.propose({&ask, 1});
  EXPECT_EQ(a.out, (std::vector<Token>{4, 5}));  // no longer than what agreed
  Asked b{.tokens = {9, 9, 8}, .prediction = {5, 6, 7, 8}};
  ask = b.ask(2, 3, 3);
  drafter.propose({&ask, 1});
  EXPECT_EQ(b.out, (std::vector<Token>{5, 6, 7}));
  b.tokens = {9, 9, 8, 5, 6};
  ask = b.ask(2, 3, 9);
  drafter.propose({&ask, 1});
  EXPECT_EQ(b.out, (std::vector<Token>{7, 8}));  // and then it has ended
  b.tokens = {9, 9, 8, 5, 6, 1};                 // one is not as predicted
  ask = b.ask(2, 3, 9);
  drafter.propose({&ask, 1});
  EXPECT_EQ(b.out, (std::vector<Token>{8}));
  b.tokens = {9, 9, 8, 5, 6, 1, 2};
  ask = b.ask(2, 3, 9);
  drafter.propose({&ask, 1});
  EXPECT_EQ(b.out, (std::vector<Token>{}));  // behind its end there is nothing
}

// One word of a long repetition is another: what is behind it is guessed at once, but less of it; some more end it, and
// so does one after a short repetition.
TEST(SuffixDrafter, GoesOnBehindATokenThatIsAnother) {
  auto guessed = [](int repeated, std::vector<Token> others) {
    OwnDrafter drafter({});
    Asked a;
    for (Token token = 1; token <= 40; ++token) a.tokens.push_back(token);
    for (Token token = 1; token <= repeated; ++token) a.tokens.push_back(token);
    a.tokens.insert(a.tokens.end(), others.begin(), others.end());
    DraftAsk ask = a.ask(1, 40, 16);
    drafter.propose({&ask, 1});
    return a.out;
  };
  using Tokens = std::vector<Token>;
  EXPECT_EQ(guessed(12, {}), (Tokens{13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24}));
  EXPECT_EQ(guessed(12, {99}), (Tokens{14, 15, 16, 17, 18, 19}));
  EXPECT_EQ(guessed(30, {99}), (Tokens{32, 33, 34, 35, 36, 37, 38, 39}));
  EXPECT_EQ(guessed(12, {99, 14}), (Tokens{15, 16, 17, 18, 19, 20, 21}));
  EXPECT_EQ(guessed(12, {99, 98}), (Tokens{15, 16, 17}));
  EXPECT_EQ(guessed(12, {99, 98, 97}), Tokens{});
  EXPECT_EQ(guessed(3, {99}), Tokens{});
  // Where tokens were put in, what is repeated is found again.
  EXPECT_EQ(guessed(12, {99, 98, 13, 14}), (Tokens{15, 16}));
}

TEST(SuffixDrafter, LearnsFromEarlierAnswersOfTheSameRootOnly) {
  OwnDrafter drafter({.earlier = true});
  Asked first{.tokens = {1, 50, 51, 52, 53, 54}};
  DraftAsk ask = first.ask(1, 1, 4, 7);
  drafter.propose({&ask, 1});
  drafter.forget(1);
  Asked again{.tokens = {2, 50, 51, 52}};
  ask = again.ask(2, 1, 4, 7);
  drafter.propose({&ask, 1});
  EXPECT_EQ(again.out, (std::vector<Token>{53, 54}));
  Asked stranger{.tokens = {2, 50, 51, 52}};
  ask = stranger.ask(3, 1, 4, 8);
  drafter.propose({&ask, 1});
  EXPECT_TRUE(stranger.out.empty());
}

TEST(SuffixDrafter, ForgetsTheOldestWhenFull) {
  OwnDrafter drafter({.earlier = true, .roots = 2}, 64, 64);
  auto answer = [&](int from, uint8_t root) {
    static RequestId id = 0;
    Asked asked;
    for (int t = 0; t < 20; ++t) asked.tokens.push_back(from + t);
    DraftAsk ask = asked.ask(++id, 1, 8, root);
    drafter.propose({&ask, 1});
    drafter.forget(id);
  };
  auto knows = [&](int from, uint8_t root) {
    Asked asked{.tokens = {9999, from + 5, from + 6, from + 7}};
    DraftAsk ask = asked.ask(1 << 20, 1, 3, root);
    drafter.propose({&ask, 1});
    drafter.forget(1 << 20);
    return asked.out == std::vector<Token>{from + 8, from + 9, from + 10};
  };
  answer(100, 1), answer(200, 1);
  EXPECT_TRUE(knows(100, 1) && knows(200, 1));
  answer(300, 1), answer(400, 1);  // more than there is room for: it starts over
  EXPECT_TRUE(knows(400, 1));
  EXPECT_FALSE(knows(100, 1));
  answer(500, 2), answer(600, 3);  // the third root takes the place of the first
  EXPECT_TRUE(knows(500, 2) && knows(600, 3));
  EXPECT_FALSE(knows(400, 1));
  for (int i = 0; i < 200; ++i) answer(i % 7, static_cast<uint8_t>(i % 5));
}

// More answers than there are places: what is guessed for one is what is guessed for it alone, and a text that is
// longer than a place is known by its latest part.
TEST(SuffixDrafter, WhoLostItsPlaceReadsAgain) {
  OwnDrafter crowd({}, 64);
  std::vector<std::unique_ptr<OwnDrafter>> alone;
  std::vector<Asked> all(5);
  std::mt19937 random(4);
  for (size_t i = 0; i < all.size(); ++i) alone.push_back(std::make_unique<OwnDrafter>(SuffixOptions{}, 64));
  int guesses = 0;
  for (int step = 0; step < 400; ++step) {
    const size_t first = random() % all.size(), second = (first + 1 + random() % (all.size() - 1)) % all.size();
    std::vector<DraftAsk> asks;
    std::vector<std::vector<Token>> expected;
    for (const size_t i : {first, second}) {
      for (auto more = 1 + random() % 3; more > 0; --more) {
        const size_t length = all[i].tokens.size();
        const bool repeats = length > 20 && random() % 5 > 0;
        all[i].tokens.push_back(repeats ? all[i].tokens[length - 17] : static_cast<Token>(random() % 9));
      }
      DraftAsk ask = all[i].ask(static_cast<RequestId>(i), 4, 5);
      alone[i]->propose({&ask, 1});
      expected.push_back(all[i].out);
      asks.push_back(all[i].ask(static_cast<RequestId>(i), 4, 5));
    }
    crowd.propose(asks);
    EXPECT_EQ(all[first].out, expected[0]) << step;
    EXPECT_EQ(all[second].out, expected[1]) << step;
    guesses += static_cast<int>(expected[0].size());
  }
  EXPECT_GT(guesses, 300);
}

// What indexes take is planned, charged, and refused with the numbers where it does not fit.
TEST(SuffixDrafter, WhatItKeepsIsInTheLedger) {
  for (const bool earlier : {false, true}) {
    Tiny tiny("llama-gqa-rope3");
    EngineOptions options = options_for(4, false);
    auto used = [&] {
      int64_t all = 0;
      for (int purpose = 0; purpose < kPurposes; ++purpose) all += tiny.backend->used(static_cast<Purpose>(purpose));
      return all;
    };
    int64_t without = 0, with = 0;
    options.draft = {.make = {}, .most = 4};
    options.draft.make = [&, before = used()](Executor& target, Backend& backend) {
      if (without == 0) without = used() - before;
      auto made = SuffixDrafter::create({.earlier = earlier}, target, backend);
      with = used() - before - without;
      return made;
    };
    ASSERT_TRUE(Engine::create(*tiny.model, *tiny.backend, options).ok());
    const auto rooms = SuffixDrafter::plan({.earlier = earlier}, 4, 96);
    EXPECT_EQ(rooms.answer, 256);
    EXPECT_EQ(with, rooms.bytes());
    tiny.backend->set_limit(used() + without + with / 2);  // an engine once more, but not what it guesses from
    const auto refused = Engine::create(*tiny.model, *tiny.backend, options);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("guesses"), std::string::npos) << refused.error().message;
  }
  // A long context and many answers: as much as a few whole texts take.
  EXPECT_LE(SuffixDrafter::plan({}, 64, 1 << 17).bytes(), 110 << 20);
  EXPECT_EQ(SuffixDrafter::plan({}, 1, 4096).answer, 8192);
}

// A world where steps cost what `cost` says and guesses are kept with a fixed chance by depth.
double tokens_a_second(DraftControl& control, const std::function<double(int)>& cost, double chance, double each_guess,
                       int sequences, int most) {
  std::vector<DraftHistory> histories(static_cast<size_t>(sequences));
  double seconds = 0, tokens = 0;
  std::mt19937 random(3);
  auto coin = [&] { return static_cast<double>(random()) / 4294967296.0 < chance; };
  for (int step = 0; step < 2000; ++step) {
    std::vector<DraftControl::Seat> seats;
    for (DraftHistory& history : histories) seats.push_back({&history, most});
    control.assign(seats, sequences, sequences, 256);
    int rows = sequences, deepest = 0;
    double gained = sequences;
    for (size_t i = 0; i < seats.size(); ++i) {
      int accepted = 0;
      while (accepted < seats[i].room && coin()) ++accepted;
      const int room = seats[i].room;
      if (room > 0)
        control.landed(histories[i], {.room = room, .drafted = room, .along = accepted, .accepted = accepted});
      rows += seats[i].room;
      deepest = std::max(deepest, seats[i].room);
      gained += accepted;
    }
    const double drafting = deepest * each_guess, took = cost(rows) + drafting;
    control.ran(rows, deepest, took, drafting);
    if (step < 400) continue;
    seconds += took;
    tokens += gained;
  }
  return tokens / seconds;
}

TEST(DraftControl, IsNeverMuchWorseThanPlainOrTheBestFixedLength) {
  const std::vector<std::function<double(int)>> machines = {
      [](int rows) { return 1e-3 * (1 + 0.03 * (rows - 1)); },           // rows nearly free
      [](int rows) { return 1e-3 * (1 + 0.5 * (rows - 1)); },            // rows dear
      [](int rows) { return 1e-3 * (1 + 0.4 * ((rows + 3) / 4 - 1)); },  // in tiles of four
      [](int rows) { return 1e-3 * std::max(1.0, rows / 24.0); }};       // bound by arithmetic from 24 rows on
  for (size_t machine = 0; machine < machines.size(); ++machine) {
    for (double chance : {0.1, 0.5, 0.77, 0.95}) {
      for (double guess : {0.0, 1e-4, 5e-4}) {
        for (int sequences : {1, 8, 32}) {
          if (test::kSanitized && sequences > 1) continue;
          auto none = steady_drafts(0);
          double best = tokens_a_second(*none, machines[machine], chance, guess, sequences, 8);
          for (int most = 1; most <= 8; ++most)
            best =
                std::max(best, tokens_a_second(*steady_drafts(most), machines[machine], chance, guess, sequences, 8));
          const double own = tokens_a_second(*paying_drafts(8), machines[machine], chance, guess, sequences, 8);
          EXPECT_GT(own, 0.93 * best) << "machine " << machine << ", kept " << chance << ", a guess " << guess << " s, "
                                      << sequences << " sequences";
        }
      }
    }
  }
}

TEST(RowCosts, WhatWasNeverMeasuredIsWorthATry) {
  RowCosts costs;
  EXPECT_EQ(costs.at(3), 0);
  for (int i = 0; i < 30; ++i) {
    costs.observe(2, 1.0);
    costs.observe(5, 3.0);
  }
  EXPECT_NEAR(costs.at(2), 1, 1e-9);
  EXPECT_GT(costs.at(4), 1.5);
  EXPECT_LT(costs.at(4), 1 + 2.0 * 2 / 3);  // below the line: worth a try
  EXPECT_NEAR(costs.at(5), 3, 1e-9);
  EXPECT_NEAR(costs.at(1), 1, 1e-9);
  EXPECT_NEAR(costs.at(400), 3, 1e-9);
}

// ---- a real model ----

TEST(Speculation, EveryDrafterAndSamplerGivesThePlainAnswersInACrowd) {
  Tiny tiny("llama-gqa-rope3");
  const std::vector<Request> all = every_kind();
  const Answers plain = run_all(tiny, all, options_for(1, false)).answers;
  const int32_t vocab = tiny.model->spec().vocab;
  auto truth = [&](const DraftAsk& ask) -> std::span<const Token> {
    // Requests are numbered in the order they were submitted.
    return plain.at({static_cast<int>(ask.request), ask.choice}).tokens;
  };
  std::map<std::string, DrafterMaker> makers;
  for (double right : {0.0, 0.7, 1.0}) {
    makers[fmt::format("replay {}", right)] = [=](const Executor&, Backend&) -> Result<std::unique_ptr<Drafter>> {
      return std::unique_ptr<Drafter>(new ReplayDrafter(truth, right, 5, vocab));
    };
  }
  for (bool earlier : {false, true}) {
    makers[earlier ? "suffix" : "ngram"] = [=](Executor& target, Backend& backend) {
      return SuffixDrafter::create({.least_match = 1, .earlier = earlier}, target, backend);
    };
  }
  makers["itself"] = [&](Executor& target, Backend& backend) {
    return ModelDrafter::create(*tiny.model, target, backend);
  };
  for (const auto& [name, make] : makers) {
    for (bool overlap : {false, true}) {
      for (bool steady : {false, true}) {
        EngineOptions options = options_for(8, overlap);
        options.executor.pages = 16;  // far too few: answers are put off and computed again
        options.draft = {.make = make, .most = 4, .steady = steady};
        if (name == "itself") options.draft.beside = ModelDrafter::beside(tiny.model->spec());
        const Outcome outcome = run_all(tiny, all, options);
        EXPECT_TRUE(outcome.answers == plain) << name << (overlap ? ", overlapped" : "") << (steady ? ", steady" : "");
        if (!steady) continue;
        EXPECT_GT(outcome.metrics.preemptions, 0) << name;
        EXPECT_GT(outcome.metrics.drafted_tokens, name == "ngram" || name == "suffix" ? 5 : 200) << name;
        // A model that guesses for itself is right except where min_tokens or mirostat get in its way.
        const double kept = static_cast<double>(outcome.metrics.accepted_drafts) /
                            static_cast<double>(std::max<int64_t>(1, outcome.metrics.drafted_tokens));
        const std::map<std::string, std::pair<double, double>> expected = {
            {"replay 0", {0, 0}}, {"replay 1", {0.95, 1}}, {"itself", {0.9, 1}}};
        const auto [least, most] = expected.contains(name) ? expected.at(name) : std::pair(0.0, 1.0);
        EXPECT_TRUE(kept >= least && kept <= most) << name << " kept " << kept;
      }
    }
  }
}

// Where rows are brought in part: the best token, a list or the whole row, for every row of a window.
TEST(Speculation, PartsOfRowsGiveTheSameAnswers) {
  Tiny tiny("llama-gqa-rope3");
  std::vector<Request> all = every_kind();
  for (bool greedy : {false, true}) {
    if (greedy) std::erase_if(all, [](const Request& request) { return !takes_largest(request.sampling); });
    if (greedy)
      for (Request& request : all) request.logprobs = -1, request.min_tokens = 0;
    const Answers plain = run_all(tiny, all, options_for(1, false)).answers;
    Tiny apart("llama-gqa-rope3");
    apart.model.reset();
    apart.backend = std::make_unique<Apart>(std::move(apart.backend));
    apart.model = Model::load(apart.checkpoint, *apart.backend).value();
    EngineOptions options = options_for(6, true);
    const int32_t vocab = tiny.model->spec().vocab;
    options.draft = {.most = 5, .steady = true};
    options.draft.make = [&](const Executor&, Backend&) -> Result<std::unique_ptr<Drafter>> {
      auto truth = [&](const DraftAsk& ask) -> std::span<const Token> {
        return plain.at({static_cast<int>(ask.request), ask.choice}).tokens;
      };
      return std::unique_ptr<Drafter>(new ReplayDrafter(truth, 0.8, 5, vocab));
    };
    const Outcome outcome = run_all(apart, all, options);
    EXPECT_TRUE(outcome.answers == plain) << greedy;
    EXPECT_GT(outcome.metrics.accepted_drafts, 20);
    EXPECT_EQ(outcome.metrics.shortlist_rows == 0, greedy);
  }
}

TEST(Speculation, DraftersThatAreWrongForTheModelAreRefused) {
  Tiny tiny("llama-gqa-rope3");
  ModelSpec wider = tiny.model->spec();
  wider.vocab += 8;
  const auto other = Model::random(wider, DType::f32, 1, *tiny.backend).value();
  EngineOptions options = options_for(2, false);
  options.draft.beside = ModelDrafter::beside(wider);
  options.draft.make = [&](Executor& target, Backend& backend) {
    return ModelDrafter::create(*other, target, backend);
  };
  auto refused = Engine::create(*tiny.model, *tiny.backend, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("same vocabulary"), std::string::npos) << refused.error().message;
  options.draft.most = 17;
  EXPECT_FALSE(Engine::create(*tiny.model, *tiny.backend, options).ok());
}

// What a drafter says is trusted in nothing.
struct Nonsense : Drafter {
  std::string_view name() const override { return "nonsense"; }
  void propose(std::span<const DraftAsk> asks) override {
    for (const DraftAsk& ask : asks) *ask.out = {static_cast<Token>(turn_++ % 5), -7, 1 << 30, 3, 3, 3, 3, 3, 3, 3, 3};
  }
  int turn_ = 0;
};

TEST(Speculation, NonsenseChangesNothing) {
  Tiny tiny("llama-gqa-rope3");
  const std::vector<Request> all = every_kind();
  EngineOptions options = options_for(4, true);
  const Answers plain = run_all(tiny, all, options).answers;
  options.draft.steady = true;
  options.draft.make = [](const Executor&, Backend&) -> Result<std::unique_ptr<Drafter>> {
    return std::unique_ptr<Drafter>(new Nonsense);
  };
  EXPECT_TRUE(run_all(tiny, all, options).answers == plain);
}

}  // namespace
}  // namespace millrace
