// A request that its engine dies of: it alone fails, after at most three restarts, and nobody else notices.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <future>
#include <map>
#include <mutex>

#include "base/rng.h"
#include "process/planted_engine.h"
#include "process/remote_engine.h"

namespace millrace {
namespace {

struct Answer {
  std::vector<Token> tokens;
  int ends = 0;
  std::string failure;
};

// What became of so many requests.
class Heard {
 public:
  explicit Heard(size_t count) : answers_(count), left_(count) {}

  Listener listener(size_t index) {
    return [this, index](std::span<const Event> events) {
      std::lock_guard lock(mutex_);
      for (const Event& event : events) {
        if (event.error) answers_[index].failure = event.error->message;
        if (event.token) answers_[index].tokens.push_back(*event.token);
        if (event.finish != Finish::none && ++answers_[index].ends == 1 && --left_ == 0) done_.set_value();
      }
    };
  }
  std::vector<Answer> wait() {
    done_.get_future().wait();
    std::lock_guard lock(mutex_);
    return answers_;
  }

 private:
  std::mutex mutex_;
  std::vector<Answer> answers_;
  size_t left_;
  std::promise<void> done_;
};

// Seeds decide prompts and lengths; none has the poison in it.
std::vector<Request> healthy(uint64_t seed, uint32_t count) {
  std::vector<Request> all(count);
  for (uint32_t n = 0; n < count; ++n) {
    auto draw = [&](uint32_t what, int limit) {
      return static_cast<int>(uniform({.seed = seed, .position = n, .draw = what}) * limit);
    };
    const int length = 1 + draw(0, 60);
    for (int t = 0; t < length; ++t) all[n].prompt.push_back(5 + draw(100 + static_cast<uint32_t>(t), 200));
    all[n].max_tokens = 1 + draw(1, 60);
    all[n].sampling.temperature = n % 3 == 0 ? 0.0 : 1.0;
    all[n].sampling.seed = n;
  }
  return all;
}

std::unique_ptr<RemoteEngine> started() {
  EngineCommand command;
  command.words = {"test", "engine", MILLRACE_SOURCE_DIR "/tests/model/golden/llama-gqa-rope3"};
  command.spare = true;
  auto engine = RemoteEngine::start(std::move(command), [] { return true; }, {});
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? std::move(*engine) : nullptr;
}

std::vector<Answer> answers_of(RemoteEngine& engine, const std::vector<Request>& all) {
  Heard heard(all.size());
  for (size_t i = 0; i < all.size(); ++i) engine.submit(all[i], heard.listener(i));
  return heard.wait();
}

TEST(Poison, FailsAloneAfterAtMostThreeRestarts) {
  auto engine = started();
  ASSERT_NE(engine, nullptr);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<Request> all = healthy(seed, 8);
    const std::vector<Answer> wanted = answers_of(*engine, all);
    Request poison = all[seed % 8];
    poison.prompt.insert(poison.prompt.begin() + static_cast<ptrdiff_t>(seed % poison.prompt.size()), kPoison);
    all.push_back(poison);
    const int before = engine->snapshot().restarts;
    const std::vector<Answer> got = answers_of(*engine, all);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(got[i].failure, "") << "seed " << seed;
      EXPECT_EQ(got[i].tokens, wanted[i].tokens) << "seed " << seed;
      EXPECT_EQ(got[i].ends, 1) << "seed " << seed;
    }
    EXPECT_NE(got.back().failure.find("stopped 3 times while it computed this request"), std::string::npos)
        << got.back().failure;
    EXPECT_EQ(got.back().ends, 1);
    EXPECT_TRUE(got.back().tokens.empty());
    const int restarts = engine->snapshot().restarts - before;
    EXPECT_GE(restarts, 1);
    EXPECT_LE(restarts, 3);
    if (testing::Test::HasFailure()) break;
  }
  engine.reset();
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process was left";
}

}  // namespace
}  // namespace millrace
