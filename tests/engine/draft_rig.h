// What tests of guessing ahead share: a tiny model, requests of every kind, and an engine that answers them.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "tensor/checkpoint.h"

namespace millrace {

struct Tiny {
  Checkpoint checkpoint;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;

  explicit Tiny(const char* name)
      : checkpoint(Checkpoint::open(std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/model/golden" / name).value()),
        backend(make_cpu_backend({.threads = 1}).value()),
        model(Model::load(checkpoint, *backend).value()) {}
};

// Every kind of sampler, min_tokens, stop tokens, logprobs, several answers, prompts that begin alike.
inline std::vector<Request> every_kind() {
  std::vector<Sampling> kinds = {{.temperature = 0},
                                 {.temperature = 1},
                                 {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .min_p = 0.02},
                                 {.temperature = 1, .typical = 0.9},
                                 {.temperature = 1.2, .top_n_sigma = 1.5},
                                 {.temperature = 0, .repetition = 1.3, .presence = 0.2, .frequency = 0.3},
                                 {.temperature = 1, .mirostat = 2, .mirostat_tau = 3},
                                 {.temperature = 1, .xtc_probability = 0.5, .xtc_threshold = 0.05},
                                 {.temperature = 0.7, .dry_multiplier = 0.8}};
  std::vector<Request> all;
  for (int i = 0; i < 4 * static_cast<int>(kinds.size()); ++i) {
    Request request;
    auto draw = [&](uint32_t what, int limit) {
      return static_cast<int>(uniform({.seed = 9, .position = static_cast<uint32_t>(i), .draw = what}) * limit);
    };
    for (int t = 0; t < 16; ++t) request.prompt.push_back((t % 5 * 37 + 11) % 300 + 5);
    for (int t = 0, own = 1 + draw(0, 24); t < own; ++t)
      request.prompt.push_back(5 + draw(100 + static_cast<uint32_t>(t), 300));
    request.max_tokens = 1 + draw(1, 30);
    request.min_tokens = i % 3 == 0 ? draw(2, 8) : 0;
    for (Token stop = 0; i % 4 == 1 && stop < 30; ++stop) request.stop_tokens.push_back(10 * stop);
    request.choices = i % 5 == 0 ? 3 : 1;
    request.logprobs = i % 4 == 2 ? 2 : -1;
    request.sampling = kinds[static_cast<size_t>(i) % kinds.size()];
    request.sampling.seed = static_cast<uint64_t>(i);
    request.root.bytes[0] = static_cast<uint8_t>(i % 3);
    all.push_back(std::move(request));
  }
  return all;
}

struct Said {
  std::vector<Token> tokens;
  std::vector<float> logprobs;
  Finish finish = Finish::none;
  bool operator==(const Said&) const = default;
};
using Answers = std::map<std::pair<int, int>, Said>;

struct Outcome {
  Answers answers;
  Metrics metrics;
};

inline Outcome run_all(Tiny& tiny, const std::vector<Request>& all, const EngineOptions& options) {
  std::mutex mutex;
  std::promise<void> done;
  Outcome outcome;
  int left = 0;
  for (const Request& request : all) left += request.choices;
  auto engine = Engine::create(*tiny.model, *tiny.backend, options).value();
  for (size_t i = 0; i < all.size(); ++i) {
    engine->submit(all[i], [&, i](std::span<const Event> events) {
      std::lock_guard lock(mutex);
      for (const Event& event : events) {
        EXPECT_FALSE(event.error) << event.error->message;
        Said& said = outcome.answers[{static_cast<int>(i), event.choice}];
        if (event.token) said.tokens.push_back(*event.token);
        if (event.logprobs) said.logprobs.push_back(event.logprobs->chosen);
        said.finish = event.finish;
        if (event.finish != Finish::none && --left == 0) done.set_value();
      }
    });
  }
  done.get_future().wait();
  std::lock_guard lock(mutex);
  outcome.metrics = engine->snapshot().metrics;
  return outcome;
}

inline EngineOptions options_for(int sequences, bool overlap) {
  EngineOptions options;
  options.executor.context = 96;
  options.limits = {.step_tokens = 64, .max_sequences = sequences};
  options.overlap = overlap;
  return options;
}

}  // namespace millrace
