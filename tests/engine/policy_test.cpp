#include "engine/policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "engine/scheduler_harness.h"

namespace millrace {
namespace {

const Limits kLimits{.step_tokens = 128, .max_sequences = 16, .max_waiting = 5000, .max_choices = 8, .context = 4096};

TEST(Fairness, AThousandRequestsOfOneTenantDoNotDelayTheSingleOneOfAnother) {
  for (const char* policy : {"fcfs", "priority", "slo"}) {
    Harness engine(kLimits, 500, policy);
    for (int index = 0; index < 1000; ++index)
      ASSERT_TRUE(engine.scheduler.submit(Harness::ask(200, 100, "flood", 1000 * index), 0).ok());
    for (int count = 0; count < 60; ++count) engine.step();
    int64_t arrived = engine.steps;
    RequestId single = engine.scheduler.submit(Harness::ask(100, 50, "single"), engine.now).value();
    while (engine.answers[std::pair(single, 0)].finish == Finish::none) engine.step();
    const Answer& answer = engine.answers[std::pair(single, 0)];
    // Alone its first token takes 1 step; with half of every step, 2; and one more until its turn comes.
    EXPECT_LE(answer.steps.front() - arrived, 3) << policy;
    EXPECT_EQ(answer.steps.back() - answer.steps.front(), 49) << policy;  // then a token in every step
  }
}

TEST(Fairness, TenantsAreServedAlikeWhateverTheirRequests) {
  Harness engine(kLimits, 300);
  for (int index = 0; index < 400; ++index)
    ASSERT_TRUE(engine.scheduler.submit(Harness::ask(100, 100, "many", 1000 * index), 0).ok());
  for (int index = 0; index < 40; ++index)
    ASSERT_TRUE(engine.scheduler.submit(Harness::ask(600, 400, "long", 1000 * index), 0).ok());
  for (int count = 0; count < 1000; ++count) engine.step();
  auto& served = engine.served;
  double share = static_cast<double>(served["many"]) / static_cast<double>(served["many"] + served["long"]);
  EXPECT_GT(share, 0.42);
  EXPECT_LT(share, 0.58);
}

TEST(Fairness, ATenantThatWasAwayHasEarnedNothing) {
  Harness engine(kLimits, 300);
  ASSERT_TRUE(engine.scheduler.submit(Harness::ask(10, 5, "late"), 0).ok());
  engine.run();
  for (int index = 0; index < 200; ++index)
    ASSERT_TRUE(engine.scheduler.submit(Harness::ask(50, 50, "busy", 1000 * index), engine.now).ok());
  for (int count = 0; count < 300; ++count) engine.step();
  for (int index = 0; index < 200; ++index)
    ASSERT_TRUE(engine.scheduler.submit(Harness::ask(50, 50, "late", 1000 * index), engine.now).ok());
  engine.served.clear();
  for (int count = 0; count < 300; ++count) engine.step();
  EXPECT_GT(static_cast<double>(engine.served["busy"]), 0.35 * static_cast<double>(engine.served["late"]));
}

TEST(Priority, TheLargerGoesFirstAndPreempts) {
  Limits limits = kLimits;
  limits.max_sequences = 2;
  Harness engine(limits, 300, "priority");
  for (int index = 0; index < 6; ++index)
    ASSERT_TRUE(engine.scheduler.submit(Harness::ask(10, 200, "a", 100 * index), 0).ok());
  for (int count = 0; count < 5; ++count) engine.step();
  Request urgent = Harness::ask(10, 5, "a", 5000);
  urgent.priority = 3;
  RequestId id = engine.scheduler.submit(urgent, engine.now).value();
  engine.step();
  EXPECT_EQ(engine.answers[std::pair(id, 0)].tokens.size(), 1u);
  engine.run();
  for (const auto& record : engine.scheduler.take_records()) EXPECT_LE(record.preemptions, 2);
}

TEST(Priority, NobodyWaitsForEver) {
  Limits limits = kLimits;
  limits.max_sequences = 1;
  Harness engine(limits, 300, "priority");
  engine.seconds = [](const StepPlan&) { return 0.05; };
  RequestId low = -1;
  // A stream of more important ones that alone fills the machine.
  int64_t waited = 0;
  for (int count = 0; count < 3000; ++count) {
    if (count % 5 == 0) {
      Request urgent = Harness::ask(10, 6, "a", 10 * count);
      urgent.priority = 2;
      ASSERT_TRUE(engine.scheduler.submit(urgent, engine.now).ok());
    }
    if (count == 50) low = engine.scheduler.submit(Harness::ask(10, 30, "a", 900000), engine.now).value();
    engine.step();
    if (count > 50 && engine.answers[std::pair(low, 0)].finish != Finish::none) break;
    ++waited;
  }
  EXPECT_EQ(engine.answers[std::pair(low, 0)].finish, Finish::length);
  EXPECT_GT(waited, 200);
  EXPECT_LT(waited, 1500);
}

TEST(Static, NobodyJoinsABatchThatHasBegun) {
  Limits limits = kLimits;
  limits.max_sequences = 4;
  Harness engine(limits, 300, "static");
  std::vector<RequestId> ids;
  for (int index = 0; index < 6; ++index)
    ids.push_back(engine.scheduler.submit(Harness::ask(20, 10 + 10 * index, "a", 100 * index), 0).value());
  engine.run();
  auto first = [&](int index) { return engine.answers[std::pair(ids[static_cast<size_t>(index)], 0)].steps.front(); };
  auto last = [&](int index) { return engine.answers[std::pair(ids[static_cast<size_t>(index)], 0)].steps.back(); };
  EXPECT_EQ(first(3), first(0));
  EXPECT_EQ(first(4), last(3) + 1);
  EXPECT_EQ(first(5), first(4));
}

TEST(Policies, AreFoundByName) {
  for (const char* name : {"fcfs", "priority", "slo", "static"}) EXPECT_EQ(make_policy(name).value()->name(), name);
  EXPECT_FALSE(make_policy("best").ok());
}

// ---- latency targets ----

struct Outcome {
  double goodput = 0, throughput = 0, refused = 0;
  double next_p99 = 0, first_p99 = 0;
};

// Requests arrive at a steady random rate; a step costs as on a machine where weights take 20 ms and a token 0.2 ms.
Outcome replay(const char* policy, double rate, int count) {
  Harness engine({.step_tokens = 512, .max_sequences = 64, .max_waiting = 2000, .max_choices = 1, .context = 4096},
                 4000, policy);
  engine.seconds = [](const StepPlan& plan) {
    return 0.02 + 2e-4 * plan.tokens + 1e-7 * static_cast<double>(plan.context);
  };
  Dice dice(5);
  std::vector<std::pair<double, Request>> arrivals;
  double at = 0;
  for (int index = 0; index < count; ++index) {
    at += -std::log(1 - static_cast<double>(dice.next() >> 11) * 0x1.0p-53) / rate;
    Request request = Harness::ask(dice.roll(50, 600), dice.roll(20, 120), "a", 10000 * index);
    request.targets = {1.0, 0.05};
    arrivals.emplace_back(at, request);
  }
  size_t next = 0;
  while (next < arrivals.size() || !engine.scheduler.idle()) {
    for (; next < arrivals.size() && arrivals[next].first <= engine.now; ++next)
      (void)engine.scheduler.submit(arrivals[next].second, arrivals[next].first);
    if (engine.step().empty() && next < arrivals.size()) engine.now = arrivals[next].first;
  }
  const Metrics& metrics = engine.scheduler.metrics();
  return {metrics.goodput(), metrics.throughput(), static_cast<double>(metrics.refused) / count,
          metrics.next_token.quantile(0.99), metrics.first_token.quantile(0.99)};
}

TEST(Slo, KeepsItsTargetsUnderLoadWhereFcfsMissesThem) {
  double sustainable = 7, before = 0;
  for (double load : {1.0, 2.0, 5.0}) {
    Outcome slo = replay("slo", load * sustainable, 250), fcfs = replay("fcfs", load * sustainable, 250);
    printf(
        "load %.0fx: slo goodput %.2f/s (refused %.0f %%, first p99 %.2f s, next p99 %.3f s), "
        "fcfs %.2f/s (first p99 %.2f s, next p99 %.3f s)\n",
        load, slo.goodput, 100 * slo.refused, slo.first_p99, slo.next_p99, fcfs.goodput, fcfs.first_p99, fcfs.next_p99);
    EXPECT_GE(slo.goodput, fcfs.goodput) << load;
    EXPECT_GE(slo.goodput, 0.95 * before) << load;  // more load never makes it worse
    if (load > 1) {
      EXPECT_GT(slo.goodput, 4 * fcfs.goodput) << load;
    }
    EXPECT_LT(slo.next_p99, 0.055) << load;
    before = slo.goodput;
  }
}

TEST(Slo, RefusesWithAPredictedWait) {
  Harness engine({.step_tokens = 64, .max_sequences = 8, .max_waiting = 2000, .max_choices = 1, .context = 4096}, 4000,
                 "slo");
  ASSERT_TRUE(engine.scheduler.submit(Harness::ask(2000, 20), 0).ok());
  for (int count = 0; count < 10; ++count) engine.step();
  for (int index = 1; index < 10; ++index)
    ASSERT_TRUE(engine.scheduler.submit(Harness::ask(2000, 20, "a", 3000 * index), engine.now).ok());
  Request hurried = Harness::ask(100, 5, "a", 100000);
  hurried.targets.first_token = 0.2;
  auto refused = engine.scheduler.submit(hurried, engine.now);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::overloaded);
  double predicted = 0;
  ASSERT_EQ(sscanf(refused.error().message.c_str(), "the first token would come in about %lf s", &predicted), 1);
  // 20,000 tokens, 64 a step of 7.4 ms.
  EXPECT_NEAR(predicted, 20000.0 / 64 * 7.4e-3, 0.5);
  hurried.targets.first_token = 60;
  EXPECT_TRUE(engine.scheduler.submit(hurried, engine.now).ok());
}

}  // namespace
}  // namespace millrace
