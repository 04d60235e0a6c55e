#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "engine/sampler_oracle.h"

namespace millrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Sampler make(const Sampling& sampling, size_t vocab, uint32_t choice = 0) {
  return Sampler::create(sampling, static_cast<int32_t>(vocab), choice).value();
}

Token sample_once(const Sampling& sampling, std::span<const float> logits, std::span<const Token> context = {}) {
  SamplerScratch scratch(static_cast<int32_t>(logits.size()));
  return make(sampling, logits.size()).sample(logits, context, scratch).value();
}

oracle::Distribution distribution_of(const Sampling& sampling, std::span<const float> logits,
                                     std::span<const Token> context = {}) {
  SamplerScratch scratch(static_cast<int32_t>(logits.size()));
  oracle::Distribution result;
  auto found = make(sampling, logits.size()).distribution(logits, context, scratch).value();
  for (auto [id, p] : found) result[id] = p;
  return result;
}

void expect_same(const oracle::Distribution& found, const oracle::Distribution& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (auto [id, p] : expected) {
    ASSERT_TRUE(found.contains(id)) << what << ": token " << id;
    EXPECT_NEAR(found.at(id), p, 1e-5 * p + 1e-9) << what << ": token " << id;
  }
}

// Counts of `draws` choices with the same logits at different positions.
std::map<Token, int> draw_many(const Sampling& sampling, std::span<const float> logits, int draws) {
  Sampler sampler = make(sampling, logits.size());
  SamplerScratch scratch(static_cast<int32_t>(logits.size()));
  std::vector<Token> context;
  std::map<Token, int> counts;
  for (int i = 0; i < draws; ++i) {
    ++counts[sampler.sample(logits, context, scratch).value()];
    context.push_back(0);
  }
  return counts;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOfEquals) {
  Sampling greedy{.temperature = 0};
  EXPECT_EQ(sample_once(greedy, std::vector<float>{1, 5, 3}), 1);
  EXPECT_EQ(sample_once(greedy, std::vector<float>{-7, -2, -2, -9}), 1);
  std::vector<float> wide(100'003, -1.0f);
  wide[99'999] = wide[70'001] = 2;
  EXPECT_EQ(sample_once(greedy, wide), 70'001);
}

TEST(Sampler, BrokenLogitsAreErrors) {
  for (float bad : {kNan, kInfinity}) {
    for (size_t place : {0, 17, 99}) {
      std::vector<float> logits(100, 0.5f);
      logits[place] = bad;
      SamplerScratch scratch(100);
      auto result = make({}, 100).sample(logits, {}, scratch);
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code, Code::corrupt);
      EXPECT_NE(result.error().message.find(fmt::format("token {}", place)), std::string::npos)
          << result.error().message;
      Logprobs out;
      EXPECT_FALSE(logprobs(logits, 0, 5, scratch, out).ok());
    }
  }
  std::vector<float> hidden(8, 0.0f);
  hidden[3] = kNan;
  SamplerScratch scratch(8);
  EXPECT_FALSE(make({.banned = {3}}, 8).sample(hidden, {}, scratch).ok()) << "a ban must not hide a NaN";
}

TEST(Sampler, NothingLeftIsAnError) {
  SamplerScratch scratch(3);
  std::vector<float> logits = {1, 2, 3};
  auto result = make({.banned = {0, 1}}, 3).sample(logits, {}, scratch, std::vector<Token>{2});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::invalid);
  EXPECT_EQ(make({.banned = {0, 1}}, 3).sample(logits, {}, scratch).value(), 2);
}

TEST(Sampler, NegativeInfinityMeansNever) {
  std::vector<float> logits = {0, -kInfinity, 0, -kInfinity};
  auto counts = draw_many({.seed = 3}, logits, 2000);
  EXPECT_TRUE(oracle::fits(counts, {{0, 0.5}, {2, 0.5}}, 2000));
}

// Every step alone: the exact distribution, and draws from it.
TEST(Sampler, EachStepMeansItsDefinition) {
  struct Case {
    const char* name;
    Sampling sampling;
  };
  const Case cases[] = {
      {"plain", {}},
      {"cold", {.temperature = 0.4}},
      {"hot", {.temperature = 3}},
      {"top-k", {.top_k = 7}},
      {"top-k 1", {.top_k = 1}},
      {"top-k all", {.top_k = 1000}},
      {"typical", {.typical = 0.6}},
      {"top-p", {.top_p = 0.8}},
      {"min-p", {.min_p = 0.1}},
      {"top-n-sigma", {.top_n_sigma = 1.2}},
      {"usual", {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05}},
      {"bias", {.bias = {{3, 4.0f}, {5, -2.0f}}, .banned = {0, 1}}},
  };
  std::vector<float> logits = oracle::random_logits(60, 5);
  for (Case c : cases) {
    c.sampling.seed = 11;
    oracle::Distribution expected = oracle::distribution(c.sampling, logits, {}, false);
    expect_same(distribution_of(c.sampling, logits), expected, c.name);
    constexpr int kDraws = 10'000;
    EXPECT_TRUE(oracle::fits(draw_many(c.sampling, logits, kDraws), expected, kDraws)) << c.name;
  }
}

TEST(Sampler, XtcActsAsOftenAsItShould) {
  std::vector<float> logits = {3.0f, 2.8f, 2.7f, 1.0f, 0.5f, 0.2f, -1.0f};
  Sampling s{.xtc_probability = 0.3, .xtc_threshold = 0.15, .seed = 8};
  oracle::Distribution never = oracle::distribution(s, logits, {}, false),
                       acting = oracle::distribution(s, logits, {}, true);
  ASSERT_EQ(acting.size(), never.size() - 2) << "the example should remove two";
  oracle::Distribution mixed;
  for (auto [id, p] : never) mixed[id] = 0.7 * p + (acting.contains(id) ? 0.3 * acting[id] : 0);
  constexpr int kDraws = 30'000;
  EXPECT_TRUE(oracle::fits(draw_many(s, logits, kDraws), mixed, kDraws));
  s.xtc_probability = 1;
  expect_same(distribution_of(s, logits), acting, "always");
  EXPECT_EQ(sample_once({.temperature = 0, .xtc_probability = 1, .xtc_threshold = 0.15}, logits), 2);
  s.xtc_threshold = 0.51;
  expect_same(distribution_of(s, logits), never, "no two tokens can both have more than half");
}

TEST(Sampler, PenaltiesCountWithinTheirWindow) {
  std::vector<float> logits = {2, -1, 0.5f, 3, -2, 1};
  std::vector<Token> context = {3, 3, 0, 1, 1, 1, 0, 2};
  for (int32_t window : {-1, 0, 1, 3, 5, 8, 64}) {
    Sampling s{.penalty_window = window, .repetition = 1.3, .presence = 0.4, .frequency = 0.25};
    expect_same(distribution_of(s, logits, context), oracle::distribution(s, logits, context, false),
                fmt::format("window {}", window));
  }
  std::vector<Token> strange = {-1, 77, 0};  // ids of something that is not text
  EXPECT_EQ(distribution_of({.repetition = 1.3}, logits, strange),
            distribution_of({.repetition = 1.3}, logits, strange));
}

TEST(Sampler, DryPunishesWhatContinuesARepetition) {
  // "a b c d ... a b c": d continues a repetition of three.
  std::vector<float> logits(10, 0.0f);
  std::vector<Token> context = {1, 2, 3, 4, 5, 1, 2, 3};
  Sampling s{.dry_multiplier = 0.8, .dry_base = 1.75, .dry_allowed_length = 2};
  oracle::Distribution p = distribution_of(s, logits, context);
  EXPECT_NEAR(std::log(p[0] / p[4]), 0.8 * 1.75, 1e-5);
  EXPECT_NEAR(p[0], p[5], 1e-12);
  s.dry_breakers = {2};  // cuts it to length one
  EXPECT_NEAR(distribution_of(s, logits, context)[4], 0.1, 1e-9);
  s.dry_breakers = {4};  // itself never punished
  EXPECT_NEAR(distribution_of(s, logits, context)[4], 0.1, 1e-9);
  std::vector<Token> stuck(5000, 7);
  p = distribution_of({.dry_multiplier = 100, .dry_base = 100}, logits, stuck);
  EXPECT_FALSE(p.contains(7));
  EXPECT_NEAR(p[0], 1.0 / 9, 1e-9);
}

TEST(Sampler, DryEqualsComparingEveryPlace) {
  std::mt19937 generator(4);
  std::vector<float> logits = oracle::random_logits(12, 9, 1);
  for (int round = 0; round < 300; ++round) {
    Sampling s{.dry_multiplier = 0.7, .dry_base = 1.3};
    s.dry_allowed_length = 1 + static_cast<int32_t>(generator() % 3);
    s.dry_window = round % 2 == 0 ? -1 : static_cast<int32_t>(generator() % 40);
    if (round % 3 == 0) s.dry_breakers = {1, 5};
    std::vector<Token> context(generator() % 60);
    for (Token& token : context) token = static_cast<Token>(generator() % (2 + round % 7));
    expect_same(distribution_of(s, logits, context), oracle::distribution(s, logits, context, false),
                fmt::format("round {}", round));
  }
}

// Many random combinations on vocabularies that take the long ways round too.
TEST(Sampler, CombinationsFollowTheOneOrder) {
  std::mt19937 generator(21);
  auto coin = [&] { return generator() % 2 == 0; };
  auto between = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(generator); };
  for (int round = 0; round < 400; ++round) {
    size_t vocab = round % 10 == 0 ? 3000 : 2 + generator() % 80;
    std::vector<float> logits =
        oracle::random_logits(vocab, static_cast<uint32_t>(generator()), static_cast<float>(between(0.01, 4)));
    Sampling s;
    s.temperature = between(0.2, 2);
    if (coin()) s.top_n_sigma = between(0.5, 3);
    if (coin()) s.top_k = static_cast<int32_t>(1 + generator() % vocab);
    if (coin()) s.typical = between(0.1, 0.99);
    if (coin()) s.top_p = between(0.1, 0.99);
    if (coin()) s.min_p = between(0.001, 0.5);
    if (coin()) s.xtc_probability = 1, s.xtc_threshold = between(0.01, 0.5);
    if (coin()) s.repetition = between(0.5, 2), s.presence = between(-1, 1), s.frequency = between(-1, 1);
    if (coin()) s.bias = {{0, 1.5f}};
    if (coin()) s.banned = {1};
    std::vector<Token> context(generator() % 20);
    for (Token& token : context) token = static_cast<Token>(generator() % vocab);
    expect_same(distribution_of(s, logits, context), oracle::distribution(s, logits, context, s.xtc_probability > 0),
                fmt::format("round {}", round));
  }
}

TEST(Sampler, MirostatTruncatesBySurprise) {
  std::vector<float> logits = oracle::random_logits(200, 31, 2);
  // So slow a rate that the bound stays at its start, twice tau.
  Sampling s{.temperature = 0.9, .mirostat = 2, .mirostat_tau = 2.5, .mirostat_eta = 1e-12, .seed = 4};
  std::map<Token, double> left;
  for (size_t id = 0; id < logits.size(); ++id) left[static_cast<Token>(id)] = logits[id];
  oracle::Distribution all = oracle::normalised(left, 0.9);
  std::erase_if(left, [&](const auto& entry) { return -std::log2(all[entry.first]) > 5.0; });
  ASSERT_GT(left.size(), 1u);
  ASSERT_LT(left.size(), 50u);
  oracle::Distribution expected = oracle::normalised(left, 0.9);
  expect_same(distribution_of(s, logits), expected, "mirostat");
  EXPECT_TRUE(oracle::fits(draw_many(s, logits, 20'000), expected, 20'000));
}

TEST(Sampler, MirostatSteersSurpriseToItsTarget) {
  // A flat tail, as language has: plain sampling is far more surprising than the target.
  std::vector<float> logits(2000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = -std::log(static_cast<float>(i + 1));
  oracle::Distribution p;
  std::map<Token, double> all;
  for (size_t id = 0; id < logits.size(); ++id) all[static_cast<Token>(id)] = logits[id];
  p = oracle::normalised(all);
  for (double tau : {3.0, 5.0}) {
    Sampler sampler = make({.mirostat = 2, .mirostat_tau = tau, .mirostat_eta = 0.1, .seed = 2}, logits.size());
    SamplerScratch scratch(2000);
    std::vector<Token> context;
    double surprise = 0;
    for (int i = 0; i < 3000; ++i) {
      Token token = sampler.sample(logits, context, scratch).value();
      if (i >= 500) surprise -= std::log2(p[token]) / 2500;
      context.push_back(token);
    }
    EXPECT_NEAR(surprise, tau, 0.05);
  }
}

// A step may be repeated after a failed page move, and the one planned after it with it; a guess may be thrown away.
TEST(Sampler, MirostatMovesOnceATokenHoweverOftenItIsChosen) {
  const Sampling s{.mirostat = 2, .mirostat_tau = 3, .mirostat_eta = 0.5, .seed = 8};
  auto logits_at = [](size_t position) { return oracle::random_logits(500, static_cast<int>(position) + 3, 2); };
  auto answer = [&](bool repeats) {
    Sampler sampler = make(s, 500);
    SamplerScratch scratch(500);
    std::vector<Token> context(5, 1);
    for (size_t i = 0; i < 60; ++i) {
      if (repeats && i % 7 == 3) {  // two tokens that will be chosen again, and a guess from other numbers
        std::vector<Token> twice = context;
        for (int more = 0; more < 2; ++more)
          twice.push_back(sampler.sample(logits_at(twice.size()), twice, scratch).value());
        EXPECT_TRUE(sampler.guess(logits_at(999), context, scratch).ok());
      }
      context.push_back(sampler.sample(logits_at(context.size()), context, scratch).value());
    }
    return context;
  };
  EXPECT_EQ(answer(true), answer(false));
}

TEST(Sampler, RenamingTokensRenamesTheDistribution) {
  std::vector<float> logits = oracle::random_logits(300, 77);
  std::vector<Token> name(300);
  std::iota(name.begin(), name.end(), 0);
  std::shuffle(name.begin(), name.end(), std::mt19937(5));
  std::vector<float> renamed(300);
  for (size_t id = 0; id < 300; ++id) renamed[static_cast<size_t>(name[id])] = logits[id];
  Sampling s{.temperature = 0.7, .top_k = 50, .typical = 0.9, .top_p = 0.9, .min_p = 0.02};
  oracle::Distribution first = distribution_of(s, logits), second = distribution_of(s, renamed);
  ASSERT_EQ(first.size(), second.size());
  for (auto [id, p] : first) EXPECT_NEAR(second[name[static_cast<size_t>(id)]], p, 1e-12);
}

TEST(Sampler, ShiftingLogitsChangesNothing) {
  std::vector<float> logits = oracle::random_logits(300, 78), shifted = logits;
  for (float& logit : shifted) logit += 64;
  expect_same(distribution_of({.typical = 0.8, .top_p = 0.9}, shifted),
              distribution_of({.typical = 0.8, .top_p = 0.9}, logits), "shifted");
}

TEST(Sampler, TopKKeepsExactlyK) {
  std::vector<float> logits = oracle::random_logits(5000, 79);
  for (size_t i = 0; i < logits.size(); i += 3) logits[i] = 4;  // thousands of equals at the bar
  for (int32_t k : {1, 2, 16, 17, 40, 1000, 1667, 4999}) {
    oracle::Distribution p = distribution_of({.top_k = k}, logits);
    EXPECT_EQ(p.size(), static_cast<size_t>(k));
    expect_same(p, oracle::distribution({.top_k = k}, logits, {}, false), fmt::format("k {}", k));
  }
}

TEST(Sampler, ARerunRepeatsAndChoicesDiffer) {
  std::vector<float> logits = oracle::random_logits(1000, 80, 1);
  SamplerScratch scratch(1000);
  auto answer = [&](uint64_t seed, uint32_t choice) {
    Sampler sampler = make({.seed = seed}, 1000, choice);
    std::vector<Token> context = {1, 2, 3};
    for (int i = 0; i < 32; ++i) context.push_back(sampler.sample(logits, context, scratch).value());
    return context;
  };
  EXPECT_EQ(answer(1, 0), answer(1, 0));
  EXPECT_NE(answer(1, 0), answer(1, 1));
  EXPECT_NE(answer(1, 0), answer(2, 0));
  EXPECT_NE(answer(1, 0), answer(uint64_t{1} << 32 | 1, 0));
}

TEST(Sampler, ThreadsDoNotMatter) {
  std::vector<float> logits = oracle::random_logits(5000, 81, 1);
  Sampling s{.temperature = 0.9, .top_p = 0.9, .repetition = 1.1, .dry_multiplier = 0.5, .seed = 6};
  auto answer = [&](std::vector<Token>& context) {
    SamplerScratch scratch(5000);
    Sampler sampler = make(s, 5000);
    for (int i = 0; i < 50; ++i) context.push_back(sampler.sample(logits, context, scratch).value());
  };
  std::vector<std::vector<Token>> answers(4);
  std::vector<std::thread> threads;
  for (auto& one : answers) threads.emplace_back([&] { answer(one); });
  for (auto& thread : threads) thread.join();
  for (auto& one : answers) EXPECT_EQ(one, answers[0]);
}

// With the same random numbers, two distributions at distance d choose alike with probability at least (1 - d) / (1 +
// d).
TEST(Sampler, SimilarDistributionsChooseAlike) {
  std::vector<float> target = oracle::random_logits(500, 82, 2), draft = target;
  std::vector<float> noise = oracle::random_logits(500, 83, 0.5f);
  for (size_t i = 0; i < draft.size(); ++i) draft[i] += noise[i];
  oracle::Distribution p = distribution_of({}, target), q = distribution_of({}, draft);
  double distance = 0;
  for (auto [id, value] : p) distance += std::abs(value - q[id]) / 2;
  Sampler one = make({.seed = 9}, 500), other = make({.seed = 9}, 500);
  SamplerScratch scratch(500);
  std::vector<Token> context;
  int alike = 0;
  constexpr int kDraws = 5000;
  for (int i = 0; i < kDraws; ++i) {
    alike += one.sample(target, context, scratch).value() == other.sample(draft, context, scratch).value();
    context.push_back(0);
  }
  double expected = (1 - distance) / (1 + distance);
  EXPECT_GT(static_cast<double>(alike) / kDraws, expected - 3 * std::sqrt(expected * (1 - expected) / kDraws));
}

TEST(Sampler, NothingGrowsOnceItHasRun) {
  std::vector<float> logits = oracle::random_logits(20'000, 84, 1);
  Sampler sampler =
      make({.typical = 0.9, .top_p = 0.9, .min_p = 0.01, .repetition = 1.1, .dry_multiplier = 0.5}, 20'000);
  SamplerScratch scratch(20'000);
  std::vector<Token> context(400, 3);
  ASSERT_TRUE(sampler.sample(logits, context, scratch).ok());
  int64_t bytes = scratch.bytes();
  for (int i = 0; i < 50; ++i) {
    context[static_cast<size_t>(i)] = i;
    ASSERT_TRUE(sampler.sample(logits, context, scratch).ok());
    EXPECT_EQ(scratch.bytes(), bytes);
  }
}

TEST(Logprobs, AreOfTheModelsOwnDistribution) {
  std::vector<float> logits = oracle::random_logits(4000, 85, 3);
  std::map<Token, double> all;
  for (size_t id = 0; id < logits.size(); ++id) all[static_cast<Token>(id)] = logits[id];
  oracle::Distribution p = oracle::normalised(all);
  std::vector<Token> order = oracle::by_probability(p);
  SamplerScratch scratch(4000);
  Logprobs out;
  ASSERT_TRUE(logprobs(logits, 123, 5, scratch, out).ok());
  EXPECT_NEAR(out.chosen, std::log(p[123]), 1e-5);
  ASSERT_EQ(out.top.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(out.top[i].id, order[i]);
    EXPECT_NEAR(out.top[i].logprob, std::log(p[order[i]]), 1e-5);
  }
  ASSERT_TRUE(logprobs(logits, 123, 0, scratch, out).ok());
  EXPECT_TRUE(out.top.empty());
  ASSERT_TRUE(logprobs(logits, 123, 9999, scratch, out).ok());
  EXPECT_EQ(out.top.size(), 4000u);
}

TEST(SamplerScan, FastExpIsClose) {
  for (double x = 0; x > -87; x -= 0.0137) {
    float rounded = static_cast<float>(x);
    EXPECT_NEAR(fast_exp(rounded) / std::exp(static_cast<double>(rounded)), 1, 3e-7) << x;
  }
  EXPECT_EQ(fast_exp(-88), 0);
  EXPECT_EQ(fast_exp(-kInfinity), 0);
  EXPECT_EQ(fast_exp(0), 1);
}

TEST(SamplerScan, ManyUniformsAreTheSingleOnes) {
  Draw draw{.seed = 0x123456789ABCDEF0, .choice = 3, .position = 77, .draw = 1000};
  std::vector<double> many(37);
  uniforms(draw, many);
  for (double one : many) {
    EXPECT_EQ(one, uniform(draw));
    ++draw.draw;
  }
}

// Not only the choice: all that could win, which is decided by every random number and every weight.
TEST(SamplerScan, TheRaceIsTheSameByEveryWidthOfVectors) {
  std::vector<Candidate> narrow, wide;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    auto logits = oracle::random_logits(1 + seed * 37, seed);
    const float largest = find_largest(logits).value().logit;
    const Draw draw{.seed = seed, .choice = seed % 3, .position = 17};
    const float inverse_temperature = seed % 2 == 0 ? 1.0F : 0.4F;
    race_candidates(logits, largest, inverse_temperature, draw, narrow, 16);
    ASSERT_FALSE(narrow.empty());
    for (int width : race_widths()) {
      race_candidates(logits, largest, inverse_temperature, draw, wide, width);
      ASSERT_EQ(wide.size(), narrow.size()) << "seed " << seed << ", " << width << " bytes";
      for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(wide[i].id, narrow[i].id) << "seed " << seed << ", " << width;
    }
  }
}

// The quick race over a whole row and the plain one over a list choose the same token.
TEST(SamplerScan, TheRaceIsTheSameOverRowAndList) {
  for (double temperature : {0.05, 0.7, 1.0, 4.0}) {
    for (uint32_t seed = 0; seed < 200; ++seed) {
      std::vector<float> logits = oracle::random_logits(333, seed, 3);
      Sampling row{.temperature = temperature, .seed = seed}, list = row;
      list.min_p = 1e-300;  // keeps everything, but as a list
      EXPECT_EQ(sample_once(row, logits), sample_once(list, logits));
    }
  }
}

TEST(Sampling, ValuesOutsideTheirRangesAreRefused) {
  EXPECT_TRUE(check_sampling({}, 10).ok());
  const double bad = std::numeric_limits<double>::quiet_NaN(), huge = std::numeric_limits<double>::infinity();
  std::vector<Sampling> refused = {{.temperature = -0.1},
                                   {.temperature = bad},
                                   {.temperature = huge},
                                   {.top_k = -1},
                                   {.typical = 0},
                                   {.top_p = 0},
                                   {.top_p = 1.1},
                                   {.min_p = -0.1},
                                   {.min_p = bad},
                                   {.xtc_probability = 2},
                                   {.penalty_window = -2},
                                   {.repetition = 0},
                                   {.presence = 101},
                                   {.frequency = huge},
                                   {.dry_multiplier = -1},
                                   {.dry_base = 0.5},
                                   {.dry_allowed_length = 0},
                                   {.dry_window = -2},
                                   {.dry_breakers = {10}},
                                   {.mirostat = 1},
                                   {.mirostat_tau = 0},
                                   {.mirostat_eta = 2},
                                   {.bias = {{0, std::numeric_limits<float>::quiet_NaN()}}},
                                   {.bias = {{10, 1}}},
                                   {.banned = {-1}}};
  for (size_t i = 0; i < refused.size(); ++i) {
    auto result = check_sampling(refused[i], 10);
    EXPECT_FALSE(result.ok()) << "case " << i;
    EXPECT_FALSE(Sampler::create(refused[i], 10).ok()) << "case " << i;
  }
}

}  // namespace
}  // namespace millrace
