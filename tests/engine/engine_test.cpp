// The engine with a real (tiny) model under pressure: whatever is shared, evicted, moved out, recomputed or overlapped,
// every answer has the bytes it has alone.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <future>

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "engine/apart.h"
#include "engine/constraint.h"
#include "tensor/checkpoint.h"

namespace millrace {
namespace {

struct TinyModel {
  Checkpoint checkpoint;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;

  static TinyModel open(const char* name, int threads) {
    TinyModel tiny;
    auto path = std::filesystem::path(MILLRACE_SOURCE_DIR) / "tests/model/golden" / name;
    tiny.checkpoint = Checkpoint::open(path).value();
    tiny.backend = make_cpu_backend({.threads = threads}).value();
    tiny.model = Model::load(tiny.checkpoint, *tiny.backend).value();
    return tiny;
  }
};

// What an answer must be: which tokens may come next is a function of the tokens so far. One token of `sparse` may.
class SumConstraint : public Constraint {
 public:
  SumConstraint(int32_t vocab, int32_t sparse) : vocab_(vocab), sparse_(sparse) {}
  State start() const override { return 1; }
  State next(State state, Token token) override { return state * 31 % 9973 + token + 1; }
  Result<std::shared_ptr<const TokenMask>> allowed(State state) override {
    auto mask = std::make_shared<TokenMask>(vocab_);
    for (Token token = 0; token < vocab_; ++token) {
      if (((token * 7 + state) % 5 != 0) == (sparse_ == 1) && (token + state) % sparse_ == 0) mask->add(token);
    }
    return std::shared_ptr<const TokenMask>(std::move(mask));
  }
  bool ends(State) override { return true; }
  std::string source() const override { return "sum"; }

 private:
  int32_t vocab_, sparse_;
};

// Some of them are bound: a few to what they would mostly have said, a few to what they would hardly have.
void bind_some(std::vector<Request>& all, int32_t vocab) {
  const auto wide = std::make_shared<SumConstraint>(vocab, 1), narrow = std::make_shared<SumConstraint>(vocab, 2);
  for (size_t i = 0; i < all.size(); ++i) {
    if (i % 4 == 1) all[i].constraint = wide;
    if (i % 8 == 3) all[i].constraint = narrow;
  }
}

// Prompts of which many begin alike, some greedy, some sampled, some with several answers.
std::vector<Request> requests(int count) {
  std::vector<Request> all;
  for (int i = 0; i < count; ++i) {
    uint32_t n = static_cast<uint32_t>(i);
    auto draw = [&](uint32_t what, int limit) {
      return static_cast<int>(uniform({.seed = 3, .position = n, .draw = what}) * limit);
    };
    Request request;
    int shared = draw(0, 3) == 0 ? 0 : 24 + 8 * draw(1, 3), own = 4 + draw(2, 40);
    for (int t = 0; t < shared; ++t) request.prompt.push_back((t * 37 + 11) % 300 + 5);
    for (int t = 0; t < own; ++t) request.prompt.push_back(5 + draw(100 + static_cast<uint32_t>(t), 300));
    request.max_tokens = 4 + draw(3, 28);
    request.choices = draw(4, 8) == 0 ? 3 : 1;
    request.sampling.temperature = draw(5, 2) == 0 ? 0.0 : 1.0;
    request.sampling.seed = n;
    request.tenant = i % 5 == 0 ? "other" : "one";
    all.push_back(request);
  }
  return all;
}

using Answers = std::map<std::pair<int, int>, std::vector<Token>>;  // request, choice

class Collector {
 public:
  explicit Collector(int expected) : left_(expected) {}

  Listener listener(int index, int choices) {
    return [this, index, open = std::make_shared<int>(choices)](std::span<const Event> events) {
      std::lock_guard lock(mutex_);
      for (const Event& event : events) {
        if (event.error) failures_.push_back(event.error->message);
        if (event.token) answers_[{index, event.choice}].push_back(*event.token);
        if (event.finish != Finish::none && (--*open == 0 || event.error)) {
          if (--left_ == 0) done_.set_value();
        }
      }
    };
  }
  Answers wait() {
    done_.get_future().wait();
    std::lock_guard lock(mutex_);  // the listener has let go of everything here
    EXPECT_TRUE(failures_.empty()) << failures_.front();
    return answers_;
  }

 private:
  std::mutex mutex_;
  int left_;
  Answers answers_;
  std::vector<std::string> failures_;
  std::promise<void> done_;
};

Answers alone(TinyModel& tiny, const std::vector<Request>& all) {
  EngineOptions options = {
      .executor = {.context = 160}, .limits = {.step_tokens = 512, .max_sequences = 4}, .overlap = false};
  Answers answers;
  auto engine = Engine::create(*tiny.model, *tiny.backend, options).value();
  for (size_t i = 0; i < all.size(); ++i) {
    Request request = all[i];
    request.root.bytes[0] = static_cast<uint8_t>(i);  // nothing is shared
    request.root.bytes[1] = static_cast<uint8_t>(i >> 8);
    Collector collector(1);
    engine->submit(request, collector.listener(static_cast<int>(i), request.choices));
    answers.merge(collector.wait());
  }
  return answers;
}

struct Pressure {
  bool overlap;
  int64_t swap_bytes;
  const char* policy;
};

class EngineUnderPressure : public testing::TestWithParam<Pressure> {};

void submit(Engine& engine, std::span<const Request> all, Collector& collector) {
  for (size_t i = 0; i < all.size(); ++i)
    engine.submit(all[i], collector.listener(static_cast<int>(i), all[i].choices));
}

TEST_P(EngineUnderPressure, AnswersAreThoseOfRunningAlone) {
  constexpr int kRequests = 200;
  TinyModel tiny = TinyModel::open("llama-gqa-rope3", 2);
  std::vector<Request> all = requests(kRequests);
  bind_some(all, tiny.model->spec().vocab);
  static const Answers expected = alone(tiny, all);
  // Sixteen sequences of up to 130 tokens want some 110 pages of 16; they get little more than a third.
  EngineOptions options = {.executor = {.context = 160, .pages = 40},
                           .limits = {.step_tokens = 48, .max_sequences = 16, .page_move_seconds = 1e-6},
                           .policy = GetParam().policy,
                           .swap_bytes = GetParam().swap_bytes,
                           .overlap = GetParam().overlap};
  auto engine = Engine::create(*tiny.model, *tiny.backend, options).value();
  Collector collector(kRequests);
  submit(*engine, all, collector);
  EXPECT_EQ(collector.wait(), expected);
  Engine::Snapshot after = engine->snapshot();
  EXPECT_GT(after.metrics.preemptions, 0);
  EXPECT_GT(after.metrics.cached_tokens, 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineUnderPressure,
                         testing::Values(Pressure{false, 0, "fcfs"}, Pressure{true, 0, "fcfs"},
                                         Pressure{false, 1 << 20, "fcfs"}, Pressure{true, 1 << 20, "priority"}));

// Neighbours decide what a step brings of a row: nothing but the best token, a list, the whole row. The answers are
// those of reading whole rows.
TEST(Engine, PartsOfRowsGiveTheAnswersOfWholeRows) {
  constexpr int kRequests = 60;
  TinyModel tiny = TinyModel::open("llama-gqa-rope3", 2);
  std::vector<Request> all = requests(kRequests);
  for (size_t i = 0; i < all.size(); ++i) {
    Sampling& sampling = all[i].sampling;
    if (i % 5 == 1) sampling.top_k = 20;
    if (i % 5 == 2) sampling.top_p = 0.8;
    if (i % 5 == 3) sampling.min_p = 0.1;
    if (i % 7 == 3) sampling.repetition = 1.2;
    if (i % 11 == 5) sampling.typical = 0.9;
    if (i % 9 == 4) all[i].min_tokens = 3, all[i].stop_tokens = {7, 8, 9};
    if (i % 13 == 6) all[i].logprobs = 2;
  }
  bind_some(all, tiny.model->spec().vocab);
  const Answers expected = alone(tiny, all);
  tiny.model.reset();
  tiny.backend = std::make_unique<Apart>(std::move(tiny.backend));
  tiny.model = Model::load(tiny.checkpoint, *tiny.backend).value();
  EngineOptions options = {.executor = {.context = 160}, .limits = {.step_tokens = 64, .max_sequences = 16}};
  auto engine = Engine::create(*tiny.model, *tiny.backend, options).value();
  Collector collector(kRequests);
  submit(*engine, all, collector);
  EXPECT_EQ(collector.wait(), expected);
  const Metrics metrics = engine->snapshot().metrics;
  EXPECT_GT(metrics.shortlist_rows, metrics.whole_rows);
  EXPECT_GT(metrics.whole_rows, 0);
  EXPECT_LT(metrics.unsettled_rows, metrics.shortlist_rows / 4);
}

TEST(Engine, RefusesWithTheNumbers) {
  TinyModel tiny = TinyModel::open("llama-mha", 1);
  auto engine =
      Engine::create(*tiny.model, *tiny.backend, {.executor = {.context = 64}, .limits = {.max_sequences = 2}}).value();
  auto refusal = [&](Request request) {
    std::promise<std::string> message;
    engine->submit(std::move(request), [&](std::span<const Event> events) {
      message.set_value(events[0].error ? events[0].error->message : "accepted");
    });
    return message.get_future().get();
  };
  Request too_long = {.prompt = std::vector<Token>(60, 7), .max_tokens = 30};
  EXPECT_NE(refusal(too_long).find("64"), std::string::npos);
  Request no_such_token = {.prompt = {1, 99999}};
  EXPECT_NE(refusal(no_such_token).find("99999"), std::string::npos);
  Request no_such_temperature = {.prompt = {1}};
  no_such_temperature.sampling.temperature = -1;
  EXPECT_NE(refusal(no_such_temperature), "accepted");
}

// An answer for which no token is left ends with an error of its own, although the step after it is planned by then;
// the one beside it has the bytes it has alone.
TEST(Engine, AnAnswerWithoutATokenEndsAlone) {
  TinyModel tiny = TinyModel::open("llama-gqa-rope3", 2);
  Request good{.prompt = {5, 6, 7}, .max_tokens = 24};
  good.sampling.temperature = 0;
  const Answers expected = alone(tiny, {good});
  Request none = good;
  none.min_tokens = none.max_tokens;
  for (Token token = 0; token < tiny.model->spec().vocab; ++token) none.stop_tokens.push_back(token);
  for (bool overlap : {false, true}) {
    EngineOptions options = {.executor = {.context = 160}, .limits = {.max_sequences = 4}, .overlap = overlap};
    auto engine = Engine::create(*tiny.model, *tiny.backend, options).value();
    Collector collector(1);
    engine->submit(good, collector.listener(0, 1));
    std::promise<std::optional<Error>> told;
    engine->submit(none, [&](std::span<const Event> events) { told.set_value(events.back().error); });
    EXPECT_TRUE(told.get_future().get().has_value()) << overlap;
    EXPECT_EQ(collector.wait(), expected) << overlap;
  }
}

TEST(Engine, CancelledRequestsGiveTheirPagesBack) {
  TinyModel tiny = TinyModel::open("llama-mha", 1);
  auto engine =
      Engine::create(*tiny.model, *tiny.backend, {.executor = {.context = 256}, .limits = {.max_sequences = 8}})
          .value();
  std::vector<RequestId> ids;
  std::atomic<int> tokens = 0;
  for (int i = 0; i < 8; ++i) {
    Request request = {.prompt = {1, 5 + i, 9}, .max_tokens = 200};
    ids.push_back(engine->submit(request, [&](std::span<const Event>) { ++tokens; }));
  }
  while (tokens < 40) std::this_thread::yield();
  for (RequestId id : ids) engine->cancel(id);
  Collector last(1);
  engine->submit({.prompt = {1, 2}, .max_tokens = 2}, last.listener(0, 1));
  last.wait();
  Engine::Snapshot after = engine->snapshot();
  EXPECT_EQ(after.metrics.running, 0);
  EXPECT_EQ(after.metrics.cancelled, 8);
  EXPECT_EQ(after.metrics.pages_used, after.metrics.pages_cached);  // what is left belongs to the prefix tree
}

// One answer of several ends; the others go on as if nothing had happened, and the pages are told free without a step.
TEST(Engine, OneAnswerCanBeCancelled) {
  TinyModel tiny = TinyModel::open("llama-mha", 1);
  auto engine =
      Engine::create(*tiny.model, *tiny.backend, {.executor = {.context = 256}, .limits = {.max_sequences = 8}})
          .value();
  Request request = {.prompt = {1, 5, 9}, .max_tokens = 100, .choices = 3};
  Collector whole(1);
  engine->submit(request, whole.listener(0, 3));
  const Answers expected = whole.wait();
  std::mutex mutex;
  std::map<int, std::vector<Token>> heard;
  int calls = 0;
  std::promise<void> done;
  std::atomic<RequestId> id = 0;
  int open = 2;
  id = engine->submit(
      request,
      [&](std::span<const Event> events) {
        std::lock_guard lock(mutex);
        EXPECT_EQ(events.empty(), calls++ == 0);  // first it hears that it is in the queue
        for (const Event& event : events) {
          if (event.token) heard[event.choice].push_back(*event.token);
          if (event.choice == 1 && heard[1].size() == 5) engine->cancel(id, 1);
          if (event.choice != 1 && event.finish != Finish::none && --open == 0) done.set_value();
        }
      },
      true);
  done.get_future().wait();
  EXPECT_EQ(heard[0], expected.at({0, 0}));
  EXPECT_EQ(heard[2], expected.at({0, 2}));
  EXPECT_LT(heard[1].size(), 100u);
  EXPECT_EQ(engine->snapshot().metrics.cancelled, 0);
  RequestId other = engine->submit({.prompt = {1, 2}, .max_tokens = 250}, [](std::span<const Event>) {});
  engine->cancel(other);
  const auto quiet = [&] {
    const Metrics m = engine->snapshot().metrics;
    return m.running == 0 && m.waiting == 0 && m.pages_used == m.pages_cached;
  };
  while (!quiet()) std::this_thread::yield();
}

TEST(Engine, StopTokensWaitForTheLeastLength) {
  TinyModel tiny = TinyModel::open("llama-mha", 1);
  auto engine =
      Engine::create(*tiny.model, *tiny.backend, {.executor = {.context = 64}, .limits = {.max_sequences = 1}}).value();
  Request free = {.prompt = {1, 17, 45}, .max_tokens = 12};
  free.sampling.temperature = 0;
  Collector first(1);
  engine->submit(free, first.listener(0, 1));
  std::vector<Token> tokens = first.wait()[{0, 0}];
  ASSERT_EQ(tokens.size(), 12u);
  Request stopped = free;
  stopped.stop_tokens = {tokens[2]};
  Collector second(1);
  engine->submit(stopped, second.listener(0, 1));
  EXPECT_LE(second.wait().begin()->second.size(), 3u);
  stopped.min_tokens = 6;
  Collector third(1);
  engine->submit(stopped, third.listener(0, 1));
  std::vector<Token> longer = third.wait().begin()->second;
  EXPECT_GE(longer.size(), 6u);
  EXPECT_EQ(std::count(longer.begin(), longer.begin() + 6, tokens[2]), 0);
}

}  // namespace
}  // namespace millrace
