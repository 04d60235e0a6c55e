// Several ways to go on in one step: which are tried, and that answers stay the plain ones whichever is right, with
// every kind of pages, sampler and crowd.
#include <gtest/gtest.h>

#include <set>

#include "engine/apart.h"
#include "engine/draft/control.h"
#include "engine/draft/replay.h"
#include "engine/draft/tree.h"
#include "engine/draft_rig.h"

namespace millrace {
namespace {

int rows_of(const std::vector<Token>& main, const std::vector<std::vector<Token>>& others) {
  size_t rows = main.size();
  for (const auto& path : others) rows += path.size() + 1;
  return static_cast<int>(rows);
}

TEST(PlanPaths, KeepToTheirRowsAndDiffer) {
  for (int rows = 0; rows <= 16; ++rows) {
    for (int branches = 0; branches <= kMostBranches; ++branches) {
      for (const bool free : {false, true}) {
        std::vector<std::vector<Token>> choices;
        for (int depth = 0; depth < 4; ++depth) {
          choices.emplace_back();
          for (int rank = 0; rank < choices_at(depth, branches); ++rank) choices.back().push_back(100 * depth + rank);
        }
        std::vector<Token> main;
        std::vector<std::vector<Token>> others;
        plan_paths(choices, free, rows, branches, main, others);
        EXPECT_LE(rows_of(main, others), rows);
        EXPECT_LE(static_cast<int>(others.size()), branches);
        EXPECT_EQ(main.size(), static_cast<size_t>(std::min(4, main_depth(rows, branches))));
        EXPECT_EQ(std::set(others.begin(), others.end()).size(), others.size());
        for (const auto& path : others)
          EXPECT_FALSE(path.size() <= main.size() && std::equal(path.begin(), path.end(), main.begin()));
        EXPECT_EQ(others.empty(), rows < 4 || branches == 0) << rows;
      }
    }
  }
}

TEST(PlanPaths, TakeTheNextLikeliestFirst) {
  const std::vector<std::vector<Token>> choices = {{1, 2, 3}, {11, 12}, {21}};
  std::vector<Token> main;
  std::vector<std::vector<Token>> others;
  plan_paths(choices, true, 12, 8, main, others);
  EXPECT_EQ(main, (std::vector<Token>{1, 11, 21}));
  EXPECT_EQ(others, (std::vector<std::vector<Token>>{{2, 11}, {3, 11}, {1, 12}}));
}

// Says the truth as another way than the first, half of the time.
DrafterMaker branching(const Answers& plain, int32_t vocab) {
  return [&plain, vocab](const Executor&, Backend&) -> Result<std::unique_ptr<Drafter>> {
    auto truth = [&plain](const DraftAsk& ask) -> std::span<const Token> {
      return plain.at({static_cast<int>(ask.request), ask.choice}).tokens;
    };
    return std::unique_ptr<Drafter>(new ReplayDrafter(truth, 0.5, 5, vocab));
  };
}

// A world where steps cost what `cost` says. The first way's guesses are kept with a fixed chance, and where its first
// one is wrong another way is right with a chance of its own.
double tokens_a_second(DraftControl& control, const std::function<double(int)>& cost, double chance, double other,
                       int sequences) {
  std::vector<DraftHistory> histories(static_cast<size_t>(sequences));
  double seconds = 0, tokens = 0;
  uint32_t turn = 0;
  auto coin = [&](double below) { return uniform({.seed = 5, .position = turn++}) < below; };
  for (int step = 0; step < 2000; ++step) {
    std::vector<DraftControl::Seat> seats;
    for (DraftHistory& history : histories) seats.push_back({&history, 8});
    control.assign(seats, sequences, sequences, 256);
    int rows = sequences, deepest = 0;
    double gained = sequences;
    for (size_t i = 0; i < seats.size(); ++i) {
      const int room = seats[i].room, depth = main_depth(room, 2);
      if (room == 0) continue;
      int along = 0;
      while (along < depth && coin(chance)) ++along;
      const int accepted = along + (along == 0 && depth < room && coin(other));
      control.landed(histories[i], {.room = room, .drafted = depth, .along = along, .accepted = accepted});
      rows += room;
      deepest = std::max(deepest, depth);
      gained += accepted;
    }
    const double drafting = deepest * 5e-5, took = cost(rows) + drafting;
    control.ran(rows, deepest, took, drafting);
    if (step < 400) continue;
    seconds += took;
    tokens += gained;
  }
  return tokens / seconds;
}

TEST(TreeControl, IsNeverMuchWorseThanPlainOrTheBestFixedSize) {
  const std::vector<std::function<double(int)>> machines = {
      [](int rows) { return 1e-3 * (1 + 0.03 * (rows - 1)); },           // rows nearly free
      [](int rows) { return 1e-3 * (1 + 0.5 * (rows - 1)); },            // rows dear
      [](int rows) { return 1e-3 * (1 + 0.4 * ((rows + 3) / 4 - 1)); },  // in tiles of four
      [](int rows) { return 1e-3 * std::max(1.0, rows / 24.0); }};       // bound by arithmetic from 24 rows on
  for (size_t machine = 0; machine < machines.size(); ++machine) {
    for (const double chance : {0.1, 0.5, 0.8}) {
      for (const double other : {0.0, 0.6}) {
        for (const int sequences : {1, 16}) {
          double best = 0;
          for (int room = 0; room <= 8; ++room)
            best = std::max(best, tokens_a_second(*steady_drafts(room), machines[machine], chance, other, sequences));
          const double own = tokens_a_second(*paying_trees(8, 2), machines[machine], chance, other, sequences);
          EXPECT_GT(own, 0.93 * best) << "machine " << machine << ", kept " << chance << ", others " << other << ", "
                                      << sequences << " sequences";
        }
      }
    }
  }
}

class Tree : public testing::TestWithParam<const char*> {};

TEST_P(Tree, GivesThePlainAnswersInACrowd) {
  Tiny tiny(GetParam());
  std::vector<Request> all = every_kind();
  const Answers plain = run_all(tiny, all, options_for(1, false)).answers;
  EngineOptions options = options_for(8, false);
  options.draft = {.make = branching(plain, tiny.model->spec().vocab), .most = 8, .steady = true};
  const Outcome chain = run_all(tiny, all, options);
  EXPECT_TRUE(chain.answers == plain);
  options.draft.branches = 2;
  for (const bool overlap : {false, true}) {
    for (const int pages : {0, 40}) {
      options.overlap = overlap;
      options.executor.pages = pages;
      const Outcome tree = run_all(tiny, all, options);
      EXPECT_TRUE(tree.answers == plain) << overlap << " " << pages;
      // What is wrong on the first path is right on another.
      EXPECT_GT(tree.metrics.accepted_drafts, chain.metrics.accepted_drafts * 4 / 3) << overlap << " " << pages;
    }
  }
}

TEST_P(Tree, GivesThePlainAnswersOnAMachineApart) {
  Tiny tiny(GetParam());
  std::vector<Request> all = every_kind();
  const Answers plain = run_all(tiny, all, options_for(1, false)).answers;
  tiny.model.reset();
  tiny.backend = std::make_unique<Apart>(std::move(tiny.backend));
  tiny.model = Model::load(tiny.checkpoint, *tiny.backend).value();
  EngineOptions options = options_for(5, true);
  options.draft = {.make = branching(plain, tiny.model->spec().vocab), .most = 8, .steady = true, .branches = 2};
  const Outcome tree = run_all(tiny, all, options);
  EXPECT_TRUE(tree.answers == plain);
  EXPECT_GT(tree.metrics.accepted_drafts, 100);
  EXPECT_GT(tree.metrics.shortlist_rows, 0);
}

// Every kind of pages: of all tokens, of a window, latent.
INSTANTIATE_TEST_SUITE_P(Models, Tree, testing::Values("llama-gqa-rope3", "mistral-swa", "minicpm3"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::erase(name, '-');
                           return name;
                         });

// What a drafter says of paths is trusted in nothing.
class Crooked : public Drafter {
 public:
  std::string_view name() const override { return "crooked"; }
  void propose(std::span<const DraftAsk> asks) override {
    for (const DraftAsk& ask : asks) {
      const auto token = static_cast<Token>(ask.tokens.size() % 300);
      ask.out->assign(static_cast<size_t>(ask.limit) / 2, token);
      for (int path = 0; path < 20; ++path) {
        ask.others->push_back(std::vector<Token>(static_cast<size_t>(path % 30), token + path));
        if (path % 3 == 0) ask.others->push_back({token, path % 2 == 0 ? -5 : 1 << 30, token});
        if (path % 5 == 0) ask.others->push_back({*ask.out});
      }
    }
  }
};

TEST(TreeOfNonsense, ChangesNothing) {
  Tiny tiny("llama-gqa-rope3");
  const std::vector<Request> all = every_kind();
  const Answers plain = run_all(tiny, all, options_for(1, false)).answers;
  EngineOptions options = options_for(6, true);
  options.draft = {.most = 16, .branches = kMostBranches};
  options.draft.make = [](const Executor&, Backend&) -> Result<std::unique_ptr<Drafter>> {
    return std::unique_ptr<Drafter>(new Crooked);
  };
  EXPECT_TRUE(run_all(tiny, all, options).answers == plain);
}

TEST(TreeOfGuesses, IsRefusedWhereItCannotBe) {
  EngineOptions options = options_for(2, false);
  options.draft = {.most = 8, .branches = 2};
  options.draft.make = [](const Executor&, Backend&) -> Result<std::unique_ptr<Drafter>> {
    return std::unique_ptr<Drafter>(new Crooked);
  };
  Tiny states("lfm2"), tiny("llama-gqa-rope3");
  auto refused = Engine::create(*states.model, *states.backend, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("keeps a state"), std::string::npos) << refused.error().message;
  options.draft.branches = kMostBranches + 1;
  EXPECT_FALSE(Engine::create(*tiny.model, *tiny.backend, options).ok());
  options.draft.branches = 2;
  options.draft.rule = DraftRule::reject;
  refused = Engine::create(*tiny.model, *tiny.backend, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("by rule exact only"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace millrace
