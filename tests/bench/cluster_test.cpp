// Clusters in virtual time: what must hold whatever the figures are.
#include "bench/cluster.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

ClusterShape shape_of(int replicas) {
  ClusterShape shape{.replicas = replicas, .pages = 2000};
  shape.limits.context = 1024;
  shape.limits.max_sequences = 16;
  shape.limits.step_tokens = 256;
  shape.limits.max_waiting = 1 << 20;
  shape.cost = {.weights = 0.01, .cached = 1e-7, .row = 1e-4};
  shape.targets = {.first_token = 1, .next_token = 0.05};
  return shape;
}

std::vector<Arrival> arrivals_of(double rate, int shared = 0, int requests = 400) {
  return poisson({.rate = rate, .prompt = 300, .output = 40, .shared = shared, .requests = requests},
                 {.context = 1024, .vocab = 1000});
}

TEST(Cluster, EveryRequestEndsAndEveryTokenIsCounted) {
  const auto arrivals = arrivals_of(5);
  const ClusterReport report = run_cluster(arrivals, shape_of(3)).value();
  int64_t in = 0, out = 0;
  for (const Arrival& each : arrivals) in += std::ssize(each.prompt), out += each.output;
  EXPECT_EQ(report.requests, 400);
  EXPECT_EQ(report.refused, 0);
  EXPECT_EQ(report.tokens_in, in);
  EXPECT_EQ(report.tokens_out, out);
  EXPECT_EQ(report.on_time + report.late_first + report.late_next, 400);
  EXPECT_GT(report.busy, 0);
  EXPECT_LE(report.busy, 1);
}

TEST(Cluster, TheSameIsTheSameAgain) {
  const auto arrivals = arrivals_of(8, 128);
  const ClusterReport one = run_cluster(arrivals, shape_of(2)).value(),
                      two = run_cluster(arrivals, shape_of(2)).value();
  EXPECT_EQ(one.first_p99, two.first_p99);
  EXPECT_EQ(one.cached, two.cached);
  EXPECT_EQ(one.seconds, two.seconds);
}

TEST(Cluster, MoreTrafficNeedsMoreReplicasAndOneFewerIsTooFew) {
  int before = 0;
  for (const double rate : {8.0, 64.0, 256.0}) {
    const auto arrivals = arrivals_of(rate);
    const Sized sized = size_cluster(arrivals, shape_of(1), 0.99, 64).value();
    EXPECT_GT(sized.replicas, before) << rate;
    EXPECT_GE(sized.report.goodput(), 0.99);
    before = sized.replicas;
    if (sized.replicas == 1) continue;
    EXPECT_LT(sized.fewer.goodput(), 0.99);
    EXPECT_NE(breaks_first(sized.fewer), "nothing");
  }
}

TEST(Cluster, NoneIsEnough) {
  const Sized sized = size_cluster(arrivals_of(500), shape_of(1), 0.99, 2).value();
  EXPECT_EQ(sized.replicas, 0);
  EXPECT_LT(sized.fewer.goodput(), 0.99);
}

// Forty-one conversations (turns do not come round) that grow: each goes on where it began, or wherever it is its turn.
TEST(Cluster, RoutingByPrefixFindsMore) {
  std::vector<Arrival> talks;
  for (int turn = 0; turn < 6; ++turn) {
    for (int talk = 0; talk < 41; ++talk) {
      Arrival one{.time = turn * 20 + talk * 0.5, .prompt = {}, .output = 4};
      for (int i = 0; i < 64 * (turn + 1); ++i)
        one.prompt.push_back(static_cast<Token>((talk * 31 + i * 7 + talk * i) % 999));
      talks.push_back(std::move(one));
    }
  }
  ClusterShape shape = shape_of(4);
  const double by_prefix = run_cluster(talks, shape).value().found();
  shape.by_prefix = false;
  const double in_turn = run_cluster(talks, shape).value().found();
  EXPECT_GT(by_prefix, 0.6);
  EXPECT_LT(in_turn, by_prefix);
}

TEST(Cluster, SmallCachesAreWhatBreaks) {
  ClusterShape shape = shape_of(1);
  shape.pages = 80;
  shape.cost.row = 1e-6;
  const ClusterReport report = run_cluster(arrivals_of(40), shape).value();
  EXPECT_LT(report.goodput(), 0.99);
  EXPECT_TRUE(breaks_first(report).starts_with("memory for caches")) << breaks_first(report);
}

TEST(Cluster, NonsenseIsRefused) {
  EXPECT_FALSE(run_cluster({}, shape_of(1)).ok());
  ClusterShape shape = shape_of(0);
  EXPECT_FALSE(run_cluster(arrivals_of(1), shape).ok());
  shape = shape_of(1);
  shape.policy = "whoever";
  EXPECT_FALSE(run_cluster(arrivals_of(1), shape).ok());
}

}  // namespace
}  // namespace millrace
