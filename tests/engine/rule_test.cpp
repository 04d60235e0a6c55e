// Rules by which guesses are kept: what comes out has the distribution it should, and an answer is the same alone and
// in a crowd by every rule.
#include "engine/draft/rule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/draft/model.h"
#include "engine/draft/suffix.h"
#include "engine/draft_rig.h"

namespace millrace {
namespace {

const std::vector<float> kTarget = {0.3f, -1.2f, 1.9f, 0.1f, -0.4f, 1.1f, -2.5f, 0.8f};
const std::vector<float> kDraft = {1.4f, -0.2f, 0.9f, 0.4f, -1.4f, 1.3f, -0.5f, -3.0f};

Sampler sampler_of(Sampling sampling, uint64_t seed) {
  sampling.seed = seed;
  return Sampler::create(sampling, static_cast<int32_t>(kTarget.size())).value();
}

// Sum of (found - expected)^2 / expected over the tokens of p.
double chi_square(const std::vector<TokenProbability>& p, const std::vector<int64_t>& counts, int64_t draws) {
  double sum = 0;
  for (const TokenProbability& entry : p) {
    const double expected = entry.probability * static_cast<double>(draws);
    const double off = static_cast<double>(counts[static_cast<size_t>(entry.id)]) - expected;
    sum += off * off / expected;
  }
  return sum;
}

// 0.9999 of chi-square values with 7 degrees of freedom are below 29.9, and with 4 below 23.6.
TEST(DraftRule, RejectDrawsFromTheTarget) {
  const std::vector<Token> context = {1, 2, 3};
  SamplerScratch scratch(static_cast<int32_t>(kTarget.size()));
  for (const Sampling& sampling : {Sampling{.temperature = 1}, Sampling{.temperature = 0.7, .top_k = 5}}) {
    for (const bool certain : {false, true}) {
      constexpr int64_t kDraws = 250'000;
      std::vector<int64_t> counts(kTarget.size());
      std::vector<TokenProbability> p;
      int64_t kept = 0;
      for (int64_t seed = 0; seed < kDraws; ++seed) {
        const Sampler sampler = sampler_of(sampling, static_cast<uint64_t>(seed));
        p = sampler.distribution(kTarget, context, scratch).value();
        const auto q = sampler.distribution(kDraft, context, scratch).value();
        const Token guess = certain ? 2 : sampler.guess(kDraft, context, scratch).value();
        const Draw at{static_cast<uint64_t>(seed), 0, static_cast<uint32_t>(context.size()), 0};
        const Token token = take_or_reject(p, certain ? std::vector<TokenProbability>() : q, guess, at);
        ++counts[static_cast<size_t>(token)];
        kept += token == guess;
      }
      EXPECT_LT(chi_square(p, counts, kDraws), p.size() > 5 ? 29.9 : 23.6) << certain << " " << sampling.top_k;
      EXPECT_GT(kept, kDraws / 5);
      EXPECT_LT(kept, kDraws);
    }
  }
}

// A test that could not fail shows nothing: keeping every guess is found out.
TEST(DraftRule, TheTestFindsWrongDistributions) {
  const std::vector<Token> context = {1, 2, 3};
  SamplerScratch scratch(static_cast<int32_t>(kTarget.size()));
  std::vector<int64_t> counts(kTarget.size());
  for (uint64_t seed = 0; seed < 20'000; ++seed)
    ++counts[static_cast<size_t>(sampler_of({.temperature = 1}, seed).guess(kDraft, context, scratch).value())];
  const auto p = sampler_of({.temperature = 1}, 0).distribution(kTarget, context, scratch).value();
  EXPECT_GT(chi_square(p, counts, 20'000), 1000);
}

// Two models that run the same race choose the same token with a chance that has a closed form.
TEST(DraftRule, TheRaceAgreesAsOftenAsItShould) {
  const std::vector<Token> context = {1, 2, 3};
  SamplerScratch scratch(static_cast<int32_t>(kTarget.size()));
  const Sampler any = sampler_of({.temperature = 1}, 0);
  const auto p = any.distribution(kTarget, context, scratch).value(),
             q = any.distribution(kDraft, context, scratch).value();
  double expected = 0, far = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    double sum = 0;
    for (size_t j = 0; j < p.size(); ++j)
      sum += std::max(p[j].probability / p[i].probability, q[j].probability / q[i].probability);
    expected += 1 / sum;
    far += std::abs(p[i].probability - q[i].probability) / 2;
  }
  EXPECT_GE(expected, (1 - far) / (1 + far));
  EXPECT_LE(expected, 1 - far);
  constexpr int kDraws = 200'000;
  int same = 0;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const Sampler sampler = sampler_of({.temperature = 1}, seed);
    same += sampler.guess(kTarget, context, scratch).value() == sampler.guess(kDraft, context, scratch).value();
  }
  const double error = std::sqrt(expected * (1 - expected) / kDraws);
  EXPECT_NEAR(static_cast<double>(same) / kDraws, expected, 4 * error);
}

TEST(DraftRule, TypicalKeepsWhatIsLikelyEnoughForHowCertainTheModelIs) {
  const std::vector<TokenProbability> sure = {{0, 0.9}, {1, 0.095}, {2, 0.005}};
  EXPECT_TRUE(is_typical(sure, 0));
  EXPECT_TRUE(is_typical(sure, 1));
  EXPECT_FALSE(is_typical(sure, 2));
  EXPECT_FALSE(is_typical(sure, 7));
  std::vector<TokenProbability> flat;
  for (Token id = 0; id < 100; ++id) flat.push_back({id, 0.01});
  EXPECT_TRUE(is_typical(flat, 50));  // 0.3 / 100 is the bar
  EXPECT_EQ(rule_named("reject").value(), DraftRule::reject);
  EXPECT_FALSE(rule_named("tipical").ok());
}

TEST(DraftRule, AnAnswerIsTheSameAloneAndInACrowd) {
  Tiny tiny("llama-gqa-rope3");
  std::vector<Request> all = every_kind();
  std::erase_if(all, [](const Request& request) { return request.sampling.mirostat != 0; });
  const auto other = Model::random(tiny.model->spec(), DType::f32, 1, *tiny.backend).value();
  const std::map<std::string, DrafterMaker> makers = {
      {"ngram",
       [](Executor& target, Backend& backend) { return SuffixDrafter::create({.least_match = 1}, target, backend); }},
      {"itself",
       [&](Executor& target, Backend& backend) { return ModelDrafter::create(*tiny.model, target, backend); }},
      {"another", [&](Executor& target, Backend& backend) { return ModelDrafter::create(*other, target, backend); }}};
  const Answers plain = run_all(tiny, all, options_for(1, false)).answers;
  for (const auto& [name, make] : makers) {
    for (const DraftRule rule : {DraftRule::reject, DraftRule::typical}) {
      EngineOptions alone = options_for(1, false);
      alone.draft = {.make = make, .most = 4, .steady = false, .rule = rule};
      if (name != "ngram") alone.draft.beside = ModelDrafter::beside(tiny.model->spec());
      const Outcome expected = run_all(tiny, all, alone);
      EXPECT_GT(expected.metrics.drafted_tokens, 5) << name;
      if (name == "another") {
        EXPECT_FALSE(expected.answers == plain) << "another rule draws other tokens";
      }
      for (const bool overlap : {false, true}) {
        EngineOptions crowd = options_for(8, overlap);
        crowd.executor.pages = 16;  // far too few: answers are put off and computed again
        crowd.draft = alone.draft;
        const Outcome outcome = run_all(tiny, all, crowd);
        EXPECT_TRUE(outcome.answers == expected.answers) << name << " by " << rule_name(rule) << " " << overlap;
        EXPECT_GT(outcome.metrics.preemptions, 0);
      }
    }
  }
}

// Tokens of a step are told together, so an engine that is gone had told whole windows, and the next one begins where
// the last one ended: the rest of the answer is the same.
TEST(DraftRule, AnAnswerGoesOnBehindAnyWindow) {
  Tiny tiny("llama-gqa-rope3");
  const auto other = Model::random(tiny.model->spec(), DType::f32, 1, *tiny.backend).value();
  EngineOptions options = options_for(2, true);
  options.draft = {.make = {}, .most = 4, .steady = false, .rule = DraftRule::reject};
  options.draft.beside = ModelDrafter::beside(tiny.model->spec());
  options.draft.make = [&](Executor& target, Backend& backend) {
    return ModelDrafter::create(*other, target, backend);
  };
  auto run = [&](const Request& request) {
    std::promise<void> done;
    std::vector<std::vector<Token>> windows;
    auto engine = Engine::create(*tiny.model, *tiny.backend, options).value();
    engine->submit(request, [&](std::span<const Event> events) {
      std::vector<Token>& window = windows.emplace_back();
      for (const Event& event : events) {
        if (event.token) window.push_back(*event.token);
        if (event.finish != Finish::none) done.set_value();
      }
    });
    done.get_future().wait();
    return windows;
  };
  auto joined = [](std::span<const std::vector<Token>> windows) {
    std::vector<Token> tokens;
    for (const auto& window : windows) tokens.insert(tokens.end(), window.begin(), window.end());
    return tokens;
  };
  Request request = every_kind()[1];
  request.max_tokens = 40;
  request.stop_tokens.clear();
  request.sampling = {.temperature = 1, .seed = 8};
  const auto windows = run(request);
  ASSERT_GT(windows.size(), 10u);
  int longer = 0;
  for (size_t told = 1; told < windows.size(); told += 2) {
    Request again = request;
    again.again = true;
    again.resumed = {{.tokens = joined(std::span(windows).first(told))}};
    EXPECT_EQ(joined(run(again)), joined(std::span(windows).subspan(told))) << told << " windows";
    longer += windows[told].size() > 1;
  }
  EXPECT_GT(longer, 0) << "no guess was kept, so little is shown";
}

TEST(DraftRule, WhatWouldMakeAnAnswerDependOnOthersIsRefused) {
  Tiny tiny("llama-gqa-rope3");
  EngineOptions options = options_for(2, false);
  options.draft = {.most = 4, .steady = false, .rule = DraftRule::reject};
  options.draft.make = [](Executor& target, Backend& backend) {
    return SuffixDrafter::create({.earlier = true}, target, backend);
  };
  auto refused = Engine::create(*tiny.model, *tiny.backend, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("depends on other requests"), std::string::npos) << refused.error().message;
  options.draft.make = [](Executor& target, Backend& backend) { return SuffixDrafter::create({}, target, backend); };
  options.limits.step_tokens = 4;
  EXPECT_FALSE(Engine::create(*tiny.model, *tiny.backend, options).ok()) << "no room for a whole window";
  options.limits.step_tokens = 64;
  auto engine = Engine::create(*tiny.model, *tiny.backend, options).value();
  std::promise<std::string> said;
  engine->submit({.prompt = {1, 2, 3}, .sampling = {.mirostat = 2}},
                 [&](std::span<const Event> events) { said.set_value(events[0].error->message); });
  EXPECT_NE(said.get_future().get().find("mirostat"), std::string::npos);
}

}  // namespace
}  // namespace millrace
