// The service without a socket: an exchange that writes down what it is told, and clients that leave at awkward
// moments.
#include "server/service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>

#include "server/rig.h"

namespace millrace {
namespace {

class Recorder : public Exchange {
 public:
  explicit Recorder(bool leaves = false) : leaves_(leaves) {}
  void attach(std::shared_ptr<Job> job) override {
    if (leaves_) return job->gone();
    std::lock_guard lock(mutex_);
    job_ = std::move(job);
  }
  // Whoever has its answer lets the job go, as a connection does.
  void answer(HttpAnswer answer) override {
    std::shared_ptr<Job> done;
    tell([&] { answer_ = std::move(answer), done = std::move(job_); });
  }
  void stream(HttpAnswer head) override {
    tell([&] { answer_ = std::move(head); });
  }
  void ready() override {
    tell([&] { ++ready_; });
  }

  HttpAnswer wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        told_.wait_for(lock, std::chrono::milliseconds(testing::kPatience), [&] { return answer_.has_value(); }));
    return answer_.value_or(HttpAnswer{.status = 0});
  }
  // All a stream says, pulled only when it says it is ready; `most` bytes, then the client leaves.
  std::string pull_all(size_t most = SIZE_MAX) {
    wait();
    std::string text;
    for (int seen = 0;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock lock(mutex_);
        told_.wait_for(lock, std::chrono::milliseconds(testing::kPatience), [&] { return ready_ > seen; });
        seen = ready_;
        job = job_;
      }
      if (job->pull(text) == Job::Pull::end) break;
      if (text.size() < most) continue;
      job->gone();
      break;
    }
    std::lock_guard lock(mutex_);
    job_.reset();
    return text;
  }

 private:
  template <class F>
  void tell(F&& change) {
    {
      std::lock_guard lock(mutex_);
      change();
    }
    told_.notify_all();
  }
  const bool leaves_;
  std::mutex mutex_;
  std::condition_variable told_;
  std::optional<HttpAnswer> answer_;
  std::shared_ptr<Job> job_;
  int ready_ = 0;
};

HttpRequest completion(std::string body) {
  return {.method = "POST", .path = "/v1/completions", .body = std::move(body), .local = true};
}

constexpr const char* kStream = R"({"prompt":[1,403],"max_tokens":40,"temperature":0,"ignore_eos":true,"stream":true})";

TEST(Service, AnswersWithoutASocket) {
  Service service({});
  service.serve(testing::served_model());
  auto health = std::make_shared<Recorder>();
  service.handle({.method = "GET", .path = "/health", .local = true}, health);
  EXPECT_EQ(health->wait().status, 200);
  auto first = std::make_shared<Recorder>(), second = std::make_shared<Recorder>();
  service.handle(completion(kStream), first);
  service.handle(completion(kStream), second);
  const std::string said = first->pull_all();
  EXPECT_TRUE(said.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(second->pull_all().ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(testing::eventually([&] { return service.open() == 0; }));
}

TEST(Service, ClientsMayLeaveAtAnyMoment) {
  Service service({});
  service.serve(testing::served_model());
  for (int i = 0; i < 20; ++i) {
    auto leaver = std::make_shared<Recorder>(true), reader = std::make_shared<Recorder>();
    service.handle(completion(kStream), leaver);
    service.handle(completion(kStream), reader);
    reader->pull_all(static_cast<size_t>(i) * 100);
  }
  EXPECT_TRUE(testing::eventually([&] { return service.open() == 0; }));
  EXPECT_TRUE(testing::eventually([&] {
    const Metrics m = service.metrics();
    return m.running == 0 && m.waiting == 0 && m.pages_used == m.pages_cached;
  }));
}

// A line a request with what it cost, and nothing of what was said, also where it was refused.
TEST(Service, LogsCountsAndNeverWhatWasSaid) {
  std::mutex mutex;
  std::string log;
  ServiceOptions options;
  options.log = [&](std::string_view line) {
    std::lock_guard lock(mutex);
    log += std::string(line) + "\n";
  };
  {
    Service service(std::move(options));
    service.serve(testing::served_model());
    for (const char* body :
         {R"({"prompt":[1,403,407,419],"max_tokens":3,"ignore_eos":true,"user":"secret"})",
          R"({"prompt":[1],"stop":["secret"],"temperature":"secret"})", R"({"prompt":[1],"secret":1})", "secret"}) {
      auto one = std::make_shared<Recorder>();
      service.handle(completion(body), one);
      one->wait();
    }
    auto elsewhere = std::make_shared<Recorder>();
    service.handle({.method = "GET", .path = "/a\nb \"c", .query = "secret", .local = true}, elsewhere);
    EXPECT_EQ(elsewhere->wait().status, 404);
    EXPECT_TRUE(testing::eventually([&] { return service.open() == 0; }));
  }
  EXPECT_EQ(log.find("secret"), std::string::npos) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 5) << log;
  EXPECT_NE(log.find("POST /v1/completions 200"), std::string::npos) << log;
  EXPECT_NE(log.find(", 4 + 3 tokens, 0 cached"), std::string::npos) << log;
  EXPECT_NE(log.find("GET /a?b??c 404"), std::string::npos) << log;
}

// Everybody who waits is told, and the service goes while the engine works.
TEST(Service, EndsWithWorkOpen) {
  std::vector<std::shared_ptr<Recorder>> all;
  {
    Service service({});
    service.serve(testing::served_model(2));
    for (int i = 0; i < 12; ++i) {
      all.push_back(std::make_shared<Recorder>());
      service.handle(completion(R"({"prompt":[1],"max_tokens":500,"ignore_eos":true})"), all.back());
    }
    EXPECT_TRUE(testing::eventually([&] { return service.metrics().running == 2; }));
    service.fail_all("closing");
    for (auto& one : all) EXPECT_EQ(one->wait().status, 503);
    auto late = std::make_shared<Recorder>();
    service.handle(completion(kStream), late);
    EXPECT_EQ(late->wait().status, 503);
  }
}

}  // namespace
}  // namespace millrace
