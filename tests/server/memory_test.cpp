// Want of memory while a request is read: that request gets an answer that says so, and nothing else notices. This file
// replaces operator new for the whole test program; large allocations fail while a test says they shall. Sanitizers
// bring an operator new of their own, so there is nothing here for them.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MILLRACE_OWN_NEW 0
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MILLRACE_OWN_NEW 0
#endif
#ifndef MILLRACE_OWN_NEW
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <new>

#include "server/rig.h"

namespace {

constexpr size_t kLarge = size_t{1} << 20;
std::atomic<bool> refuse_large = false;

void* take(size_t bytes) {
  void* memory = refuse_large.load() && bytes >= kLarge ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Not inlined, or g++ sees through them and takes new and free for a pair that does not match.
[[gnu::noinline]] void* operator new(size_t bytes) { return take(bytes); }
[[gnu::noinline]] void* operator new[](size_t bytes) { return take(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace millrace {
namespace {

class OneAnswer : public Exchange {
 public:
  void attach(std::shared_ptr<Job> job) override {
    std::lock_guard lock(mutex_);
    job_ = std::move(job);
  }
  void answer(HttpAnswer answer) override {
    std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
    told_.notify_all();
  }
  void stream(HttpAnswer head) override { answer(std::move(head)); }
  void ready() override {}
  HttpAnswer wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(told_.wait_for(lock, std::chrono::milliseconds(testing::kPatience), [&] { return !!answer_; }));
    job_.reset();
    return answer_.value_or(HttpAnswer{.status = 0});
  }

 private:
  std::mutex mutex_;
  std::condition_variable told_;
  std::optional<HttpAnswer> answer_;
  std::shared_ptr<Job> job_;
};

TEST(Memory, ARequestThatFindsNoneIsAnswered) {
  Service service({});
  service.serve(testing::served_model());
  const std::string text(4 * kLarge, 'a');
  const std::pair<const char*, std::string> requests[] = {
      {"/tokenize", R"({"content":")" + text + R"("})"},
      {"/detokenize", R"({"tokens":[1],"x":")" + text + R"("})"},
      {"/apply-template", R"({"messages":[{"role":"user","content":")" + text + R"("}]})"},
      {"/v1/completions", R"({"prompt":")" + text + R"("})"},
      {"/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + text + R"("}]})"},
  };
  for (const auto& [path, body] : requests) {
    auto exchange = std::make_shared<OneAnswer>();
    HttpRequest request{.method = "POST", .path = path, .body = body, .local = true};
    refuse_large.store(true);
    service.handle(std::move(request), exchange);
    const HttpAnswer answer = exchange->wait();
    refuse_large.store(false);
    EXPECT_EQ(answer.status, 500) << path << answer.body;
    EXPECT_NE(answer.body.find("internal_error"), std::string::npos) << answer.body;
  }
  EXPECT_TRUE(testing::eventually([&] { return service.open() == 0; }));
  auto after = std::make_shared<OneAnswer>();
  const char* small = R"({"prompt":[1],"max_tokens":1})";
  service.handle({.method = "POST", .path = "/v1/completions", .body = small, .local = true}, after);
  EXPECT_EQ(after->wait().status, 200);
}

}  // namespace
}  // namespace millrace

#endif
