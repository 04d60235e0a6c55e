// Adapters in an engine: many requests with different ones at once have the answers they have alone, and loading and
// unloading between steps disturbs nobody.
#include <gtest/gtest.h>

#include <future>

#include "backend/cpu/cpu.h"
#include "engine/engine.h"
#include "model/adapters.h"
#include "tensor/checkpoint.h"

namespace millrace {
namespace {

using test::Folder;
using test::Lora;

class EngineAdapters : public testing::Test {
 protected:
  EngineAdapters() {
    const auto path = std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/eval/adapters/base-llama";
    checkpoint_ = Checkpoint::open(path).value();
    for (int i = 0; i < 3; ++i) write(folders_[static_cast<size_t>(i)], 2 + 3 * i, static_cast<uint64_t>(i) + 1);
  }
  // All projections of attention, large enough to change what is chosen.
  static void write(const Folder& folder, int64_t rank, uint64_t seed) {
    std::vector<Lora> loras;
    for (const int layer : {0, 1}) {
      const std::string start = fmt::format("model.layers.{}.self_attn.", layer);
      loras.emplace_back(start + "q_proj", rank, 64, 64, seed * 10 + 1, 1.0);
      loras.emplace_back(start + "v_proj", rank, 64, 32, seed * 10 + 2, 1.0);
      loras.emplace_back(start + "o_proj", rank, 64, 64, seed * 10 + 3, 1.0);
    }
    test::write_peft(folder, test::peft_config(rank, 16), test::peft_tensors(loras));
  }
  std::unique_ptr<Engine> engine(bool overlap, int sequences, std::vector<AdapterAsk> adapters = {}) {
    backends_.push_back(make_cpu_backend({.threads = 2}).value());
    models_.push_back(Model::load(checkpoint_, *backends_.back()).value());
    EngineOptions options = {.executor = {.context = 96},
                             .limits = {.step_tokens = 64, .max_sequences = sequences, .max_waiting = 256},
                             .overlap = overlap,
                             .adapters = std::move(adapters),
                             .watch = watch_};
    return Engine::create(*models_.back(), *backends_.back(), options).value();
  }
  AdapterAsk ask(size_t index, const std::string& name) const {
    return {.name = name, .path = folders_[index].path().string()};
  }
  static Request request(int index, const std::string& adapter) {
    Request request;
    for (int t = 0; t < 12 + index % 7; ++t) request.prompt.push_back((t * 29 + index * 13) % 320);
    request.max_tokens = 10 + index % 9;
    request.adapter = adapter;
    // Whoever asks keeps adapters apart; here every request is by itself.
    request.root.bytes[0] = static_cast<uint8_t>(index);
    return request;
  }
  struct Answer {
    std::vector<Token> tokens;
    std::string error;
  };
  static std::future<Answer> submit(Engine& engine, Request request) {
    auto promise = std::make_shared<std::promise<Answer>>();
    auto answer = std::make_shared<Answer>();
    auto future = promise->get_future();
    engine.submit(std::move(request), [promise, answer](std::span<const Event> events) {
      for (const Event& event : events) {
        if (event.token) answer->tokens.push_back(*event.token);
        if (event.error) answer->error = event.error->message;
        if (event.finish != Finish::none) promise->set_value(*answer);
      }
    });
    return future;
  }
  static Result<AdapterInfo> load(Engine& engine, AdapterAsk ask) {
    std::promise<Result<AdapterInfo>> promise;
    engine.load_adapter(std::move(ask), [&](Result<AdapterInfo> info) { promise.set_value(std::move(info)); });
    return promise.get_future().get();
  }
  static Result<void> unload(Engine& engine, const std::string& name) {
    std::promise<Result<void>> promise;
    engine.unload_adapter(name, [&](Result<void> done) { promise.set_value(std::move(done)); });
    return promise.get_future().get();
  }

  EngineWatch* watch_ = nullptr;
  Checkpoint checkpoint_;
  std::array<Folder, 3> folders_;
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<std::unique_ptr<Model>> models_;
};

std::string adapter_of(int index) { return index % 4 == 0 ? "" : fmt::format("a{}", index % 4 - 1); }

TEST_F(EngineAdapters, InACrowdAnswerAsTheyDoAlone) {
  constexpr int kRequests = 40;
  const std::vector<AdapterAsk> asks = {ask(0, "a0"), ask(1, "a1"), ask(2, "a2")};
  auto alone = engine(false, 1, asks);
  std::vector<std::vector<Token>> expected, bare;
  for (int i = 0; i < kRequests; ++i) {
    const Answer answer = submit(*alone, request(i, adapter_of(i))).get();
    EXPECT_EQ(answer.error, "");
    expected.push_back(answer.tokens);
    Request plain = request(i, "");
    plain.root.bytes[1] = 1;
    bare.push_back(submit(*alone, plain).get().tokens);
  }
  int differ = 0;
  for (int i = 0; i < kRequests; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_TRUE(!adapter_of(i).empty() || expected[at] == bare[at]) << i;
    differ += expected[at] != bare[at];
  }
  EXPECT_GT(differ, kRequests / 2);
  for (const bool overlap : {false, true}) {
    auto crowd = engine(overlap, 12, asks);
    std::vector<std::future<Answer>> answers;
    for (int i = 0; i < kRequests; ++i) answers.push_back(submit(*crowd, request(i, adapter_of(i))));
    for (int i = 0; i < kRequests; ++i)
      EXPECT_EQ(answers[static_cast<size_t>(i)].get().tokens, expected[static_cast<size_t>(i)]) << i;
  }
}

TEST_F(EngineAdapters, ComeAndGoWhileOthersAreAnswered) {
  auto running = engine(true, 8, {ask(0, "a0")});
  std::vector<std::vector<Token>> expected;
  for (int i = 0; i < 8; ++i) expected.push_back(submit(*running, request(i, i % 2 == 0 ? "a0" : "")).get().tokens);
  for (int round = 0; round < 6; ++round) {
    std::vector<std::future<Answer>> answers;
    for (int i = 0; i < 8; ++i) {
      Request again = request(i, i % 2 == 0 ? "a0" : "");
      again.root.bytes[1] = static_cast<uint8_t>(round + 1);
      answers.push_back(submit(*running, again));
    }
    const auto info = load(*running, ask(1 + static_cast<size_t>(round) % 2, "other"));
    ASSERT_TRUE(info.ok()) << info.error().message;
    EXPECT_EQ(info->rank, round % 2 == 0 ? 5 : 8);
    Request own = request(50 + round, "other");
    auto other = submit(*running, own);
    ASSERT_TRUE(unload(*running, "other").ok());
    // It was let in before and ends with what it began with; the next one is not.
    const Answer last = other.get();
    EXPECT_EQ(last.error, "");
    EXPECT_EQ(last.tokens.size(), static_cast<size_t>(own.max_tokens));
    EXPECT_NE(submit(*running, request(60, "other")).get().error.find("'other'"), std::string::npos);
    for (int i = 0; i < 8; ++i)
      EXPECT_EQ(answers[static_cast<size_t>(i)].get().tokens, expected[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(running->adapters().size(), 1u);
}

// Whoever watches over the engine is told that it is at something that may take long, and that no step is.
TEST_F(EngineAdapters, ComeAndGoWithWhoeverWatchesKnowing) {
  struct Watch : EngineWatch {
    void awake() override {}
    void step_begins(const Launch&) override { wrong += changing || stepping.exchange(true); }
    void step_ended(int64_t) override { wrong += changing || !stepping.exchange(false); }
    void change_begins() override { wrong += stepping || changing.exchange(true); }
    void change_ended() override { wrong += stepping || !changing.exchange(false); }
    void shown(const EngineSnapshot&) override {}
    std::atomic<bool> stepping = false, changing = false;
    std::atomic<int> wrong = 0;
  };
  const auto watch = std::make_unique<Watch>();
  watch_ = watch.get();
  for (const bool overlap : {false, true}) {
    auto running = engine(overlap, 8);
    std::vector<std::future<Answer>> answers;
    for (int i = 0; i < 8; ++i) answers.push_back(submit(*running, request(i, "")));
    for (int round = 0; round < 4; ++round) {
      std::promise<bool> told;
      running->load_adapter(ask(0, "one"),
                            [&](const Result<AdapterInfo>& info) { told.set_value(info.ok() && watch->changing); });
      EXPECT_TRUE(told.get_future().get());
      ASSERT_TRUE(unload(*running, "one").ok());
    }
    for (auto& answer : answers) EXPECT_EQ(answer.get().error, "");
    running.reset();
    EXPECT_EQ(watch->wrong, 0);
    EXPECT_FALSE(watch->stepping || watch->changing);
  }
}

TEST_F(EngineAdapters, AreRefusedWithTheReason) {
  auto running = engine(true, 4);
  EXPECT_NE(submit(*running, request(1, "none")).get().error.find("no adapter 'none'"), std::string::npos);
  AdapterInfo info = load(*running, ask(0, "one")).value();
  EXPECT_EQ(info.name, "one");
  EXPECT_GT(info.bytes, 0);
  EXPECT_NE(load(*running, ask(1, "one")).error().message.find("loaded already"), std::string::npos);
  EXPECT_NE(load(*running, {.name = "", .path = folders_[0].path().string()}).error().message.find("name"),
            std::string::npos);
  EXPECT_EQ(load(*running, {.name = "x", .path = "/nowhere"}).error().code, Code::not_found);
  EXPECT_FALSE(unload(*running, "two").ok());
  // A file that is no longer what it was.
  AdapterAsk changed = ask(1, "again");
  changed.content = info.content;
  EXPECT_NE(load(*running, changed).error().message.find("not what it was"), std::string::npos);
  changed = ask(0, "again");
  changed.content = info.content;
  EXPECT_TRUE(load(*running, changed).ok());
  EXPECT_EQ(running->adapters().size(), 2u);
}

}  // namespace
}  // namespace millrace
