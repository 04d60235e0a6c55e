#include "bench/workload.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr WorkloadLimits kLimits = {.context = 1000, .vocab = 320};

TEST(Workload, ReadsAzureTraces) {
  auto arrivals = parse_trace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n"
      "2023-11-16 18:15:50.9951690,396,109\r\n",
      kLimits);
  ASSERT_TRUE(arrivals.ok()) << arrivals.error().message;
  ASSERT_EQ(arrivals->size(), 2u);
  EXPECT_EQ((*arrivals)[0].time, 0);
  EXPECT_NEAR((*arrivals)[1].time, 4.314579, 1e-4);
  EXPECT_EQ((*arrivals)[0].prompt.size(), 374u);
  EXPECT_EQ((*arrivals)[1].output, 109);
}

TEST(Workload, LengthsAreExactWhereAsked) {
  const PoissonShape shape = {.prompt = 40, .output = 7, .exact = true, .requests = 9};
  for (const Arrival& arrival : poisson(shape, kLimits)) {
    EXPECT_EQ(arrival.prompt.size(), 40u);
    EXPECT_EQ(arrival.output, 7);
  }
}

TEST(Workload, MooncakeHashesSharePrefixes) {
  std::string text;
  for (int i = 0; i < 3; ++i) {
    text +=
        fmt::format("{{\"timestamp\": {}, \"input_length\": 1500, \"output_length\": 10, \"hash_ids\": [7, 8, {}]}}\n",
                    i * 500, 20 + i);
  }
  auto arrivals = parse_trace(text, {.context = 4096, .vocab = 320});
  ASSERT_TRUE(arrivals.ok()) << arrivals.error().message;
  const auto& a = (*arrivals)[0].prompt;
  const auto& b = (*arrivals)[1].prompt;
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 1024, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 1024, a.end(), b.begin() + 1024));
  EXPECT_NEAR((*arrivals)[2].time, 1.0, 1e-9);
}

TEST(Workload, LengthsShrinkTogether) {
  auto arrivals = parse_trace("2023-11-16 18:15:46.0,3000,1000\n2023-11-16 18:15:47.0,300,100\n", kLimits);
  ASSERT_TRUE(arrivals.ok());
  EXPECT_LE((*arrivals)[0].prompt.size() + static_cast<size_t>((*arrivals)[0].output), 1000u);
  EXPECT_NEAR(static_cast<double>((*arrivals)[0].prompt.size()) / static_cast<double>((*arrivals)[1].prompt.size()), 10,
              0.5);
}

TEST(Workload, BadLinesAreNamed) {
  for (const char* text : {"", "hello", "2023-11-16 18:15:46.0,x,3", "2023-11-16 18:15:46.0,5,-1",
                           "{\"input_length\": \"many\"}", "{", "a,b"}) {
    EXPECT_FALSE(parse_trace(text, kLimits).ok()) << text;
  }
}

TEST(Workload, PoissonHasItsRateAndSharesItsPrefix) {
  auto arrivals = poisson({.rate = 10, .prompt = 100, .output = 20, .shared = 40, .requests = 2000}, kLimits);
  ASSERT_EQ(arrivals.size(), 2000u);
  EXPECT_NEAR(arrivals.back().time, 200, 20);
  EXPECT_TRUE(std::equal(arrivals[0].prompt.begin(), arrivals[0].prompt.begin() + 40, arrivals[1].prompt.begin()));
  EXPECT_NE(arrivals[0].prompt[45], arrivals[1].prompt[45]);
  for (const Arrival& arrival : arrivals) {
    for (Token token : arrival.prompt) ASSERT_TRUE(token >= 0 && token < 320);
  }
}

}  // namespace
}  // namespace millrace
