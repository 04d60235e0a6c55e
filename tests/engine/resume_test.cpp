// An answer that one engine has begun and another goes on with, from its tokens alone.
#include <gtest/gtest.h>

#include <future>

#include "backend/cpu/cpu.h"
#include "engine/engine.h"
#include "tensor/checkpoint.h"

namespace millrace {
namespace {

struct Told {
  std::vector<Token> tokens;
  std::vector<double> mus;
  std::vector<float> logprobs;
  Finish finish = Finish::none;
};

class Rig {
 public:
  Rig() {
    checkpoint_ =
        Checkpoint::open(std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/model/golden/llama-gqa-rope3").value();
    backend_ = make_cpu_backend({.threads = 1}).value();
    model_ = Model::load(checkpoint_, *backend_).value();
  }
  // A new engine each time: nothing is left of the one before.
  std::vector<Told> run(Request request, std::optional<Error>* refused = nullptr) {
    EngineOptions options = {.executor = {.context = 160}, .limits = {.step_tokens = 32, .max_sequences = 4}};
    auto engine = Engine::create(*model_, *backend_, options).value();
    std::vector<Told> told(static_cast<size_t>(request.choices));
    int left = request.choices;
    for (const Resumed& before : request.resumed) left -= before.finished;
    std::promise<void> done;
    engine->submit(request, [&](std::span<const Event> events) {
      for (const Event& event : events) {
        Told& mine = told[static_cast<size_t>(event.choice)];
        if (event.token) {
          mine.tokens.push_back(*event.token);
          mine.mus.push_back(event.mu);
        }
        if (event.logprobs) mine.logprobs.push_back(event.logprobs->chosen);
        mine.finish = event.finish;
        if (event.error && refused != nullptr) *refused = event.error;
        if (event.finish != Finish::none && (--left == 0 || event.error)) done.set_value();
      }
    });
    done.get_future().wait();
    return told;
  }

 private:
  Checkpoint checkpoint_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

Request request_of(const Sampling& sampling, int choices) {
  Request request;
  for (int i = 0; i < 20; ++i) request.prompt.push_back(5 + i * 13 % 200);
  request.max_tokens = 24;
  request.min_tokens = 3;
  request.choices = choices;
  request.sampling = sampling;
  request.logprobs = 1;
  return request;
}

TEST(Resume, AnyAnswerGoesOnFromAnyTokenAsIfNothingHadHappened) {
  Rig rig;
  std::vector<std::pair<Sampling, int>> kinds = {
      {{.temperature = 0}, 1},
      {{.temperature = 1, .seed = 3}, 3},
      {{.temperature = 0.9, .top_p = 0.9, .repetition = 1.2, .frequency = 0.4, .seed = 4}, 1},
      {{.temperature = 1, .dry_multiplier = 0.8, .seed = 5}, 1},
      {{.temperature = 1, .mirostat = 2, .mirostat_tau = 4, .seed = 6}, 2},
  };
  for (const auto& [sampling, choices] : kinds) {
    const Request whole = request_of(sampling, choices);
    const std::vector<Told> wanted = rig.run(whole);
    for (size_t cut : {size_t{1}, size_t{2}, size_t{11}, size_t{23}}) {
      Request again = whole;
      again.again = true;
      for (size_t c = 0; c < wanted.size(); ++c) {
        const size_t told = std::min(cut + c, wanted[c].tokens.size() - 1);
        again.resumed.push_back(
            {.tokens = {wanted[c].tokens.begin(), wanted[c].tokens.begin() + static_cast<std::ptrdiff_t>(told)},
             .mu = wanted[c].mus[told - 1]});
      }
      const std::vector<Told> rest = rig.run(again);
      for (size_t c = 0; c < wanted.size(); ++c) {
        const auto told = static_cast<std::ptrdiff_t>(again.resumed[c].tokens.size());
        EXPECT_EQ(rest[c].tokens, std::vector<Token>(wanted[c].tokens.begin() + told, wanted[c].tokens.end()));
        EXPECT_EQ(rest[c].mus, std::vector<double>(wanted[c].mus.begin() + told, wanted[c].mus.end()));
        EXPECT_EQ(rest[c].logprobs, std::vector<float>(wanted[c].logprobs.begin() + told, wanted[c].logprobs.end()));
        EXPECT_EQ(rest[c].finish, wanted[c].finish);
      }
    }
  }
}

TEST(Resume, WithoutItsBarMirostatWouldChooseOtherwise) {
  Rig rig;
  const Request whole = request_of({.temperature = 1, .mirostat = 2, .mirostat_tau = 3, .seed = 6}, 1);
  const std::vector<Told> wanted = rig.run(whole);
  Request again = whole;
  again.resumed = {{.tokens = {wanted[0].tokens.begin(), wanted[0].tokens.begin() + 12}, .mu = 100}};
  EXPECT_NE(rig.run(again)[0].mus.back(), wanted[0].mus.back());
}

TEST(Resume, AnAnswerThatHadEndedIsLeftAlone) {
  Rig rig;
  const Request whole = request_of({.temperature = 1, .seed = 8}, 3);
  const std::vector<Told> wanted = rig.run(whole);
  Request again = whole;
  again.resumed.resize(3);
  again.resumed[0] = {.tokens = wanted[0].tokens, .finished = true};
  again.resumed[2] = {.tokens = {wanted[2].tokens[0]}};
  const std::vector<Told> rest = rig.run(again);
  EXPECT_TRUE(rest[0].tokens.empty());
  EXPECT_EQ(rest[1].tokens, wanted[1].tokens);
  EXPECT_EQ(rest[2].tokens, std::vector<Token>(wanted[2].tokens.begin() + 1, wanted[2].tokens.end()));
}

TEST(Resume, WhatCannotGoOnIsRefused) {
  Rig rig;
  Request whole = request_of({.temperature = 0}, 2);
  std::optional<Error> refused;
  whole.resumed = {{.tokens = {5}}};  // of two
  rig.run(whole, &refused);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, Code::invalid);
  refused.reset();
  whole.resumed = {{.tokens = std::vector<Token>(24, 5)}, {}};  // nothing is left to choose
  rig.run(whole, &refused);
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace millrace
