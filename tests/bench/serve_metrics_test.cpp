#include "bench/serve_metrics.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

ServeRecord record(double start, double first, std::vector<double> gaps, int64_t tokens) {
  ServeRecord made = {.start = start,
                      .first_token = first,
                      .next_tokens = gaps,
                      .prompt_tokens = 10,
                      .output_tokens = tokens,
                      .ok = true};
  made.latency = first;
  for (double gap : gaps) made.latency += gap;
  return made;
}

TEST(ServeMetrics, PercentilesInterpolateAsNumpyDoes) {
  // numpy.percentile([1, 2, 3, 10], p)
  EXPECT_DOUBLE_EQ(percentile({10, 1, 3, 2}, 0), 1);
  EXPECT_DOUBLE_EQ(percentile({10, 1, 3, 2}, 50), 2.5);
  EXPECT_DOUBLE_EQ(percentile({10, 1, 3, 2}, 90), 7.9);
  EXPECT_DOUBLE_EQ(percentile({10, 1, 3, 2}, 100), 10);
  EXPECT_EQ(percentile({}, 50), 0);
  EXPECT_EQ(percentile({4}, 99), 4);
}

TEST(ServeMetrics, FiguresFollowFromTheTimes) {
  std::vector<ServeRecord> records = {record(0, 0.1, {0.02, 0.04}, 3), record(0.5, 0.3, {0.1}, 2),
                                      record(1, 0.2, {}, 1)};
  ServeRecord failed = {.start = 1, .error = "429"};
  records.push_back(failed);
  ServeReport report = report_serve(records, 2, {}, {50, 99});
  EXPECT_EQ(report.completed, 3);
  EXPECT_EQ(report.failed, 1);
  EXPECT_EQ(report.tokens_in, 30);
  EXPECT_EQ(report.tokens_out, 6);
  EXPECT_DOUBLE_EQ(report.requests_per_second, 1.5);
  EXPECT_DOUBLE_EQ(report.output_per_second, 3);
  EXPECT_DOUBLE_EQ(report.tokens_per_second, 18);
  EXPECT_NEAR(report.ttft.mean, 200, 1e-9);
  EXPECT_NEAR(report.ttft.median, 200, 1e-9);
  EXPECT_NEAR(report.ttft.deviation, 81.6496580927726, 1e-9);  // numpy.std([100, 300, 200])
  // A request's time per token is that after the first, over the tokens after the first; one token has none.
  EXPECT_NEAR(report.tpot.mean, (30 + 100) / 2.0, 1e-9);
  EXPECT_NEAR(report.itl.mean, (20 + 40 + 100) / 3.0, 1e-9);
  EXPECT_NEAR(report.e2el.percentiles[0], 200, 1e-9);
  // First second: 3 + 2 tokens; 1.2 falls into the second. All three were open in it at some time.
  EXPECT_EQ(report.peak_output_per_second, 5);
  EXPECT_EQ(report.peak_requests, 2);
}

TEST(ServeMetrics, GoalsDecideWhatIsGood) {
  std::vector<ServeRecord> records = {record(0, 0.1, {0.02}, 2), record(0, 0.6, {0.02}, 2), record(0, 0.1, {0.2}, 2),
                                      record(0, 0.4, {}, 1)};
  ServeGoals goals;
  ASSERT_TRUE(add_goal(goals, "ttft:500").ok());
  ASSERT_TRUE(add_goal(goals, "tpot:50").ok());
  ServeReport report = report_serve(records, 4, goals, {});
  EXPECT_EQ(report.good, 2);
  EXPECT_DOUBLE_EQ(report.good_per_second, 0.5);
  EXPECT_DOUBLE_EQ(report.attainment(), 0.5);
  ASSERT_TRUE(add_goal(goals, "e2el:150").ok());
  EXPECT_EQ(report_serve(records, 4, goals, {}).good, 1);
  for (const char* wrong : {"ttft", "ttft:", "ttft:x", "ttft:-1", "ttfx:3", ":3", "", "ttft:nan"}) {
    EXPECT_FALSE(add_goal(goals, wrong).ok()) << wrong;
  }
}

TEST(ServeMetrics, NothingAtAllIsZero) {
  ServeReport report = report_serve({}, 0, {}, {99});
  EXPECT_EQ(report.completed, 0);
  EXPECT_EQ(report.requests_per_second, 0);
  EXPECT_EQ(report.ttft.percentiles.at(0), 0);
  EXPECT_EQ(report.attainment(), 0);
}

TEST(ServeMetrics, TextIsLaidOutAsVllmPrintsIt) {
  std::vector<ServeRecord> records = {record(0, 0.1, {0.02, 0.04}, 3)};
  ServeShown shown = {
      .metrics = {"ttft", "itl"}, .percentiles = {50, 99.9}, .max_concurrency = 16, .rate = 4, .goodput = true};
  std::string text = serve_text(report_serve(records, 2, {}, shown.percentiles), shown);
  EXPECT_EQ(text,
            "============ Serving Benchmark Result ============\n"
            "Successful requests:                     1         \n"
            "Failed requests:                         0         \n"
            "Maximum request concurrency:             16        \n"
            "Request rate configured (RPS):           4.00      \n"
            "Benchmark duration (s):                  2.00      \n"
            "Total input tokens:                      10        \n"
            "Total generated tokens:                  3         \n"
            "Request throughput (req/s):              0.50      \n"
            "Request goodput (req/s):                 0.50      \n"
            "Output token throughput (tok/s):         1.50      \n"
            "Peak output token throughput (tok/s):    3.00      \n"
            "Peak concurrent requests:                1.00      \n"
            "Total token throughput (tok/s):          6.50      \n"
            "---------------Time to First Token----------------\n"
            "Mean TTFT (ms):                          100.00    \n"
            "Median TTFT (ms):                        100.00    \n"
            "P50 TTFT (ms):                           100.00    \n"
            "P99.9 TTFT (ms):                         100.00    \n"
            "---------------Inter-token Latency----------------\n"
            "Mean ITL (ms):                           30.00     \n"
            "Median ITL (ms):                         30.00     \n"
            "P50 ITL (ms):                            30.00     \n"
            "P99.9 ITL (ms):                          39.98     \n"
            "==================================================\n");
}

TEST(ServeMetrics, JsonHasVllmsKeys) {
  std::vector<ServeRecord> records = {record(0, 0.1, {0.02}, 2)};
  ServeShown shown = {.metrics = {"ttft", "e2el"}, .percentiles = {99}};
  JsonObject json = serve_json(report_serve(records, 1, {}, {99}), shown, &records);
  for (const char* key : {"duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "input_lens",
                          "output_lens",
                          "ttfts",
                          "itls",
                          "start_times",
                          "generated_texts",
                          "errors",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "mean_ttft_ms",
                          "median_ttft_ms",
                          "std_ttft_ms",
                          "p99_ttft_ms",
                          "mean_e2el_ms",
                          "p99_e2el_ms"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_TRUE(json["request_goodput"].is_null());
  EXPECT_FALSE(json.contains("mean_itl_ms"));
  EXPECT_FALSE(serve_json(report_serve(records, 1, {}, {99}), shown, nullptr).contains("ttfts"));
}

}  // namespace
}  // namespace millrace
