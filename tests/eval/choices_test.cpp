// Several answers to one prompt of a model with states: the prompt is computed once, and each further answer goes on
// from a state that was kept near its end.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "backend/cpu/cpu.h"
#include "engine/engine.h"
#include "tensor/checkpoint.h"

namespace millrace {
namespace {

constexpr int kChoices = 4, kPrompt = 150, kAnswer = 5;

struct Told {
  std::mutex mutex;
  std::condition_variable changed;
  int ended = 0;
  std::vector<std::vector<Token>> answers = std::vector<std::vector<Token>>(kChoices);
};

void ask(Engine& engine, int choices, Told& told) {
  Request request;
  for (int i = 0; i < kPrompt; ++i) request.prompt.push_back(static_cast<Token>(3 + i * 7 % 300));
  request.max_tokens = kAnswer;
  request.choices = choices;
  request.sampling.seed = 11;
  engine.submit(std::move(request), [&](std::span<const Event> events) {
    std::lock_guard lock(told.mutex);
    for (const Event& event : events) {
      EXPECT_FALSE(event.error) << (event.error ? event.error->message : "");
      if (event.token) told.answers[static_cast<size_t>(event.choice)].push_back(*event.token);
      told.ended += event.finish != Finish::none;
    }
    told.changed.notify_one();
  });
  std::unique_lock lock(told.mutex);
  told.changed.wait(lock, [&] { return told.ended >= choices; });
}

TEST(Choices, ShareThePromptOfAModelWithStates) {
  for (const char* name : {"mamba", "lfm2", "nemotron_h", "qwen3_5_text", "recurrent_gemma", "rwkv", "falcon_h1",
                           "stripedhyena", "zamba2"}) {
    const auto folder = std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/model/golden" / name;
    const Checkpoint checkpoint = Checkpoint::open(folder).value();
    const auto backend = make_cpu_backend({.threads = 1}).value();
    const auto model = Model::load(checkpoint, *backend).value();
    EngineOptions options;
    options.executor.context = 256;
    options.limits.max_sequences = 8;
    options.limits.step_tokens = 64;
    Told together, alone;
    const auto engine = Engine::create(*model, *backend, options).value();
    ask(*engine, kChoices, together);
    const int64_t node = engine->executor().layout().node_tokens, computed = engine->snapshot().metrics.computed_tokens;
    EXPECT_LE(node, 64) << name;
    EXPECT_LE(computed, kPrompt + (kChoices - 1) * (node + 1) + kChoices * kAnswer) << name;
    const auto other_backend = make_cpu_backend({.threads = 1}).value();
    const auto same = Model::load(checkpoint, *other_backend).value();
    const auto other = Engine::create(*same, *other_backend, options).value();
    ask(*other, 1, alone);
    EXPECT_EQ(alone.answers[0], together.answers[0]) << name;
    EXPECT_NE(together.answers[0], together.answers[1]) << name;
  }
}

}  // namespace
}  // namespace millrace
