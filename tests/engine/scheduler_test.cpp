#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <set>

#include "engine/scheduler_harness.h"

namespace millrace {
namespace {

const Limits kLimits{.step_tokens = 64, .max_sequences = 8, .max_waiting = 100, .max_choices = 8, .context = 2048};

TEST(Scheduler, AnswersAreThoseOfRunningAlone) {
  for (bool overlap : {false, true}) {
    Harness engine(kLimits, 400);
    engine.overlap = overlap;
    std::vector<Request> requests;
    for (int index = 0; index < 20; ++index)
      requests.push_back(Harness::ask(5 + 13 * index % 90, 1 + 7 * index % 40, "a", index % 3));
    std::vector<RequestId> ids;
    for (const auto& request : requests) ids.push_back(engine.scheduler.submit(request, engine.now).value());
    engine.run();
    for (size_t index = 0; index < requests.size(); ++index) {
      const Answer& answer = engine.answers[{ids[index], 0}];
      EXPECT_EQ(answer.tokens, engine.alone(requests[index])) << index;
      EXPECT_EQ(answer.finish, Finish::length);
    }
    EXPECT_TRUE(engine.scheduler.check().ok());
  }
}

TEST(Scheduler, StopTokensEndAnAnswer) {
  Harness engine(kLimits, 100);
  Request request = Harness::ask(10, 30);
  std::vector<Token> all = engine.alone(request);
  request.stop_tokens = {all[7]};
  size_t first = static_cast<size_t>(std::find(all.begin(), all.end(), all[7]) - all.begin());
  RequestId id = engine.scheduler.submit(request, 0).value();
  engine.run();
  EXPECT_EQ(engine.answers[std::pair(id, 0)].tokens.size(), first + 1);
  EXPECT_EQ(engine.answers[std::pair(id, 0)].finish, Finish::stop);
}

TEST(Scheduler, ALongPromptNeverStopsThoseWhoDecode) {
  Harness engine(kLimits, 400);
  std::vector<RequestId> streams;
  for (int index = 0; index < 7; ++index)
    streams.push_back(engine.scheduler.submit(Harness::ask(8, 200, "a", 10 * index), 0).value());
  for (int count = 0; count < 5; ++count) engine.step();
  RequestId late = engine.scheduler.submit(Harness::ask(1500, 5, "a", 5000), engine.now).value();
  int64_t arrived = engine.steps;
  while (engine.answers[std::pair(late, 0)].tokens.empty()) {
    StepPlan plan = engine.step();
    EXPECT_LE(plan.tokens, 64);
  }
  // 57 tokens of each step are left for the prompt.
  EXPECT_EQ(engine.steps - arrived, (1500 + 56) / 57);
  for (RequestId id : streams) {
    const Answer& answer = engine.answers[std::pair(id, 0)];
    for (size_t index = 1; index < answer.steps.size(); ++index)
      EXPECT_EQ(answer.steps[index], answer.steps[index - 1] + 1);
  }
}

TEST(Scheduler, WhatCanNeverFitIsRefusedWithTheNumbers) {
  Harness engine(kLimits, 10);
  auto too_many_pages = engine.scheduler.submit(Harness::ask(100, 100), 0);
  ASSERT_FALSE(too_many_pages.ok());
  EXPECT_EQ(too_many_pages.error().code, Code::no_memory);
  EXPECT_EQ(too_many_pages.error().message,
            "200 tokens need 13 pages of cache, there are 10 in all: shorten it or give the cache more memory");
  auto too_long = engine.scheduler.submit(Harness::ask(2000, 100), 0);
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().code, Code::invalid);
  EXPECT_NE(too_long.error().message.find("2100 tokens, the context has 2048"), std::string::npos);
  EXPECT_FALSE(engine.scheduler.submit(Harness::ask(0, 5), 0).ok());
  EXPECT_FALSE(engine.scheduler.submit(Harness::ask(5, 0), 0).ok());
  Request many = Harness::ask(5, 5);
  many.choices = 9;
  EXPECT_FALSE(engine.scheduler.submit(many, 0).ok());
  EXPECT_TRUE(engine.scheduler.submit(Harness::ask(100, 60), 0).ok());
  engine.run();
  EXPECT_EQ(engine.scheduler.metrics().refused, 5);
}

TEST(Scheduler, TheQueueIsBounded) {
  Harness engine(kLimits, 100);
  // Eight may run and a hundred wait, however many of them come before the next step.
  for (int index = 0; index < 108; ++index) ASSERT_TRUE(engine.scheduler.submit(Harness::ask(5, 5), 0).ok());
  auto refused = engine.scheduler.submit(Harness::ask(5, 5), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::overloaded);
}

TEST(Scheduler, SeveralAnswersShareOnePrompt) {
  Harness engine(kLimits, 100);
  Request request = Harness::ask(100, 10);
  request.choices = 5;
  RequestId id = engine.scheduler.submit(request, 0).value();
  engine.run();
  std::set<std::vector<Token>> different;
  for (int choice = 0; choice < 5; ++choice) {
    const Answer& answer = engine.answers[std::pair(id, choice)];
    EXPECT_EQ(answer.tokens, engine.alone(request, choice));
    different.insert(answer.tokens);
  }
  EXPECT_EQ(different.size(), 5u);
  // The prompt once, its last token again for each other answer, and nine more tokens of each (the tenth is not
  // computed).
  EXPECT_EQ(engine.scheduler.metrics().computed_tokens, 100 + 4 + 5 * 9);
  EXPECT_EQ(engine.cache.counters().copies, 4);
}

TEST(Scheduler, ASharedBeginningIsComputedOnce) {
  Harness engine(kLimits, 400);
  Request first = Harness::ask(1000, 4), second = Harness::ask(1000, 4);
  second.prompt.resize(1010, 7);
  ASSERT_TRUE(engine.scheduler.submit(first, 0).ok());
  engine.run();
  int64_t before = engine.scheduler.metrics().computed_tokens;
  RequestId id = engine.scheduler.submit(second, engine.now).value();
  engine.run();
  EXPECT_EQ(engine.answers[std::pair(id, 0)].tokens, engine.alone(second));
  EXPECT_EQ(engine.scheduler.metrics().computed_tokens - before, 10 + 3);
  EXPECT_EQ(engine.scheduler.take_records().back().cached, 1000);
}

TEST(Scheduler, WhatComesBackFromTheSecondStoreIsCounted) {
  Harness engine(kLimits, 14, "fcfs", 60);
  const auto ask = [&](int seed) {
    const RequestId id = engine.scheduler.submit(Harness::ask(100, 4, "a", seed), engine.now).value();
    engine.run();
    EXPECT_EQ(engine.answers[std::pair(id, 0)].tokens, engine.alone(Harness::ask(100, 4, "a", seed)));
  };
  for (int seed : {1000, 2000, 3000}) ask(seed);
  const Metrics& metrics = engine.scheduler.metrics();
  EXPECT_EQ(metrics.prefix_second_tokens, 0);
  ask(1000);
  EXPECT_GE(metrics.prefix_second_tokens, 80);
  EXPECT_LE(metrics.prefix_second_tokens, metrics.prefix_found_tokens);
  const int64_t before = metrics.prefix_second_tokens;
  ask(1000);  // they are here now
  EXPECT_EQ(metrics.prefix_second_tokens, before);
  EXPECT_GE(metrics.prefix_found_tokens, before + 80);
}

TEST(Scheduler, CancellingGivesTheRoomToOthersAtOnce) {
  Limits limits = kLimits;
  limits.max_sequences = 2;
  for (bool overlap : {false, true}) {
    Harness engine(limits, 100);
    engine.overlap = overlap;
    RequestId first = engine.scheduler.submit(Harness::ask(20, 500), 0).value();
    RequestId second = engine.scheduler.submit(Harness::ask(20, 500, "a", 50), 0).value();
    RequestId third = engine.scheduler.submit(Harness::ask(20, 5, "a", 90), 0).value();
    for (int count = 0; count < 10; ++count) engine.step();
    EXPECT_TRUE(engine.answers[std::pair(third, 0)].tokens.empty());
    size_t had = engine.answers[std::pair(first, 0)].tokens.size();
    EXPECT_TRUE(engine.scheduler.cancel(first, engine.now));
    EXPECT_FALSE(engine.scheduler.cancel(first, engine.now));
    EXPECT_TRUE(engine.scheduler.check().ok());
    engine.step();
    if (overlap) engine.step();
    EXPECT_EQ(engine.answers[std::pair(third, 0)].tokens.size(), 1u);
    EXPECT_EQ(engine.answers[std::pair(first, 0)].tokens.size(), had);
    engine.scheduler.cancel(second, engine.now);
    engine.run();
    EXPECT_EQ(engine.scheduler.metrics().cancelled, 2);
    EXPECT_EQ(engine.scheduler.metrics().finished, 1);
    EXPECT_EQ(engine.cache.pool().free() + engine.cache.tree().evictable(), 100);
  }
}

TEST(Scheduler, APoolFarTooSmallChangesNoAnswer) {
  for (int second_pages : {0, 30}) {
    Harness engine(kLimits, 14, "fcfs", second_pages);
    std::vector<std::pair<RequestId, Request>> asked;
    for (int index = 0; index < 12; ++index) {
      Request request = Harness::ask(30 + index, 60, "a", 1000 * index);
      asked.emplace_back(engine.scheduler.submit(request, 0).value(), request);
    }
    engine.run();
    for (const auto& [id, request] : asked) EXPECT_EQ(engine.answers[std::pair(id, 0)].tokens, engine.alone(request));
    EXPECT_GT(engine.scheduler.metrics().preemptions, 0);
    EXPECT_EQ(engine.cache.counters().moved_in > 0, second_pages > 0);
    EXPECT_TRUE(engine.scheduler.check().ok());
  }
}

TEST(Scheduler, ABrokenRowEndsItsOwnAnswerOnly) {
  Harness engine(kLimits, 100);
  RequestId first = engine.scheduler.submit(Harness::ask(8, 10), 0).value();
  Request other = Harness::ask(8, 10, "a", 50);
  RequestId second = engine.scheduler.submit(other, 0).value();
  StepPlan plan = engine.scheduler.next(0);
  Sampled sampled = engine.model.run(plan, {}, engine.dice);
  sampled.rows[0] = {.error = error(Code::internal, "not a number")};
  auto events = engine.scheduler.commit(plan, sampled, 0.1);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].finish, Finish::failed);
  EXPECT_EQ(events[0].error->message, "not a number");
  engine.take(events);
  engine.run();
  EXPECT_EQ(engine.answers[std::pair(second, 0)].tokens, engine.alone(other));
  EXPECT_EQ(engine.answers[std::pair(first, 0)].finish, Finish::failed);
  EXPECT_EQ(engine.scheduler.metrics().failed, 1);
}

TEST(Scheduler, DraftsSaveStepsAndChangeNothing) {
  for (bool overlap : {false, true}) {
    Limits limits = kLimits;
    limits.max_drafts = 3;
    Harness engine(limits, 100, "fcfs", 0, Harness::plain(4), steady_drafts(3));
    engine.overlap = overlap;
    Request request = Harness::ask(10, 40);
    const std::vector<Token> truth = engine.alone(request);
    // Always wrong after the first token.
    engine.guess = [&](const Work& work, int at, HashModel::Guesses& out) {
      for (int index = 0; index < work.drafts; ++index, ++at)
        out.first.push_back(index == 0 && at < 50 ? truth[static_cast<size_t>(at - 10)] : 999);
    };
    RequestId id = engine.scheduler.submit(request, 0).value();
    engine.run();
    EXPECT_EQ(engine.answers[std::pair(id, 0)].tokens, truth);
    EXPECT_LE(engine.steps, 22);  // two tokens a step
    const Metrics& metrics = engine.scheduler.metrics();
    EXPECT_GE(metrics.accepted_drafts, 19);
    EXPECT_GT(metrics.drafted_tokens, metrics.accepted_drafts);
    EXPECT_EQ(metrics.accepted_at[0], metrics.accepted_drafts);
    EXPECT_EQ(metrics.accepted_at[1], 0);
  }
}

// Guesses for the first sequences it sees, and steps that take what a test says.
class SomeDrafts : public DraftControl {
 public:
  SomeDrafts(size_t guessed, double seconds, double a_row) : guessed_(guessed), seconds_(seconds), a_row_(a_row) {}
  void assign(std::span<Seat> seats, int, int, int) override {
    for (Seat& seat : seats) {
      if (chosen_.size() < guessed_) chosen_.insert(seat.history);
      if (chosen_.contains(seat.history)) seat.room = std::min(3, seat.limit);
    }
  }
  double step_seconds(int rows, int) const override { return seconds_ + a_row_ * rows; }

 private:
  size_t guessed_;
  double seconds_, a_row_;
  std::set<const DraftHistory*> chosen_;
};

// Answers of which half begin a step later would otherwise go on as two halves by turns for ever, since who has guesses
// on the way is not planned: each a whole step, where one step could have all.
TEST(Scheduler, WhoHasGuessesIsPutIntoOneStep) {
  Limits limits = kLimits;
  limits.max_drafts = 3;
  Harness engine(limits, 400, "fcfs", 0, Harness::plain(4), std::make_unique<SomeDrafts>(8, 1e-3, 1e-5));
  engine.overlap = true;
  engine.seconds = [](const StepPlan& plan) { return 1e-3 + 1e-5 * plan.tokens; };
  std::map<int, int> sizes;
  for (int index = 0; index < 8; ++index) {
    ASSERT_TRUE(engine.scheduler.submit(Harness::ask(6 + index, 200, "a", 1000 * index), 0).ok());
    if (index % 4 == 3) engine.step(), engine.step();
  }
  for (int step = 0; step < 40; ++step) ++sizes[static_cast<int>(engine.step().work.size())];
  EXPECT_GE(sizes[8], 36);
  EXPECT_EQ(sizes[4], 0);
}

// One of eight has guesses: the seven others do not stand still between steps for its sake if that takes long.
TEST(Scheduler, OthersDoNotWaitForAFewGuesses) {
  for (const bool slow : {false, true}) {
    Limits limits = kLimits;
    limits.max_drafts = 3;
    Harness engine(limits, 400, "fcfs", 0, Harness::plain(4), std::make_unique<SomeDrafts>(1, 1e-3, 1e-5));
    engine.overlap = true;
    engine.seconds = [](const StepPlan& plan) { return 1e-3 + 1e-5 * plan.tokens; };
    engine.pause = slow ? 5e-4 : 0;
    for (int index = 0; index < 8; ++index)
      ASSERT_TRUE(engine.scheduler.submit(Harness::ask(6, 200, "a", 1000 * index), 0).ok());
    int together = 0, apart = 0;
    for (int step = 0; step < 120; ++step) {
      const size_t size = engine.step().work.size();
      if (step < 60) continue;
      together += size == 8, apart += size == 7;
    }
    EXPECT_GE(slow ? apart : together, slow ? 20 : 55);
  }
}

TEST(Scheduler, KvWasteIsLessThanAPageASequence) {
  Harness engine(kLimits, 400);
  for (int index = 0; index < 8; ++index)
    ASSERT_TRUE(engine.scheduler.submit(Harness::ask(400 + index, 100, "a", 1000 * index), 0).ok());
  engine.run();
  EXPECT_GT(engine.scheduler.metrics().kv_waste(), 0);
  EXPECT_LT(engine.scheduler.metrics().kv_waste(), 0.04);
}

TEST(Limits, AreChecked) {
  EXPECT_TRUE(check_limits(kLimits).ok());
  Limits few = kLimits;
  few.step_tokens = 7;
  EXPECT_FALSE(check_limits(few).ok());
  for (auto member :
       {&Limits::step_tokens, &Limits::max_sequences, &Limits::max_waiting, &Limits::context, &Limits::max_choices}) {
    Limits bad = kLimits;
    bad.*member = 0;
    EXPECT_FALSE(check_limits(bad).ok());
  }
}

}  // namespace
}  // namespace millrace
