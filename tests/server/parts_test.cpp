// Parts that need neither a socket nor a model: keys, limits, the doorbell, quoting.
#include <gtest/gtest.h>

#include "server/doorbell.h"
#include "server/keys.h"
#include "server/limiter.h"
#include "server/openai/writing.h"

namespace millrace {
namespace {

TEST(Keys, AreFoundByTheWholeKeyOnly) {
  Keys keys;
  ASSERT_TRUE(
      keys.add_lines("alice  sk-0123456789 rpm=5 tpm=100 concurrent=2 # hers\n\n  # nobody\r\nbob\tsk-abcdefghij")
          .ok());
  const Keys::Entry* alice = keys.find("Bearer sk-0123456789");
  ASSERT_NE(alice, nullptr);
  EXPECT_EQ(alice->name, "alice");
  EXPECT_EQ(alice->limits.requests_per_minute, 5);
  EXPECT_EQ(alice->limits.tokens_per_minute, 100);
  EXPECT_EQ(alice->limits.concurrent, 2);
  EXPECT_EQ(keys.find("Bearer sk-abcdefghij")->name, "bob");
  for (std::string_view scheme : {"bearer ", "BEARER ", "bEaReR  "})  // as RFC 9110 has it
    EXPECT_EQ(keys.find(std::string(scheme) + "sk-0123456789"), alice) << scheme;
  for (std::string_view wrong : {"", "Bearer", "Bearer ", "Bearer sk-012345678", "Bearer sk-01234567890",
                                 "sk-0123456789", "Basic sk-0123456789", "Bearer alice"})
    EXPECT_EQ(keys.find(wrong), nullptr) << wrong;
}

TEST(Keys, AnOperatorIsNamedOrAlone) {
  Keys keys;
  ASSERT_TRUE(keys.add_lines("alice sk-0123456789").ok());
  EXPECT_TRUE(keys.oversees(*keys.find("Bearer sk-0123456789")));
  ASSERT_TRUE(keys.add_lines("bob sk-abcdefghij rpm=3\ncarol sk-9876543210 operator rpm=2").ok());
  EXPECT_FALSE(keys.oversees(*keys.find("Bearer sk-0123456789")));
  EXPECT_FALSE(keys.oversees(*keys.find("Bearer sk-abcdefghij")));
  EXPECT_TRUE(keys.oversees(*keys.find("Bearer sk-9876543210")));
  EXPECT_EQ(keys.find("Bearer sk-9876543210")->limits.requests_per_minute, 2);
}

TEST(Keys, RefuseWhatIsWrong) {
  for (std::string_view lines :
       {"alice", "alice short", "alice sk-0123456789 rpm=", "alice sk-0123456789 rpm=-1", "alice sk-0123456789 speed=3",
        "alice sk-0123456789 operators", "a sk-0123456789\na sk-9876543210", "a sk-0123456789\nb sk-0123456789"}) {
    Keys keys;
    auto added = keys.add_lines(lines);
    ASSERT_FALSE(added.ok()) << lines;
    EXPECT_NE(added.error().message.find("line "), std::string::npos);
    EXPECT_EQ(added.error().message.find("sk-"), std::string::npos);  // a key is never said
  }
}

TEST(Limiter, HoldsRatesExactly) {
  Limiter limiter;
  const TenantLimits limits{.requests_per_minute = 60};
  int admitted = 0;
  for (int i = 0; i < 1000; ++i) {  // ten seconds, a hundred a second
    const double now = 5 + i * 0.01;
    if (limiter.enter("a", limits, now)) continue;
    ++admitted;
    limiter.leave("a", limits, 0, now);
  }
  EXPECT_GE(admitted, 60 + 9);
  EXPECT_LE(admitted, 60 + 10);
  EXPECT_FALSE(limiter.enter("b", limits, 15));  // others have their own
}

TEST(Limiter, ChargesTokensAndCountsWhoIsOpen) {
  Limiter limiter;
  const TenantLimits limits{.tokens_per_minute = 600, .concurrent = 2};
  EXPECT_FALSE(limiter.enter("a", limits, 0));
  EXPECT_FALSE(limiter.enter("a", limits, 0));
  auto third = limiter.enter("a", limits, 0);
  ASSERT_TRUE(third);
  EXPECT_EQ(third->status, 429);
  limiter.leave("a", limits, 1200, 0);
  auto later = limiter.enter("a", limits, 0);
  ASSERT_TRUE(later);
  EXPECT_NEAR(*later->retry_after, 60.1, 0.2);
  EXPECT_NE(later->message.find("try again in about 61 s"), std::string::npos) << later->message;
  EXPECT_TRUE(limiter.enter("a", limits, 59));
  EXPECT_FALSE(limiter.enter("a", limits, 61));
}

TEST(Doorbell, CallsOnceForAllWhoAreNamed) {
  struct Counter : Sleeper {
    void wake() override { ++woken; }
    int woken = 0;
  };
  std::vector<std::function<void()>> posted;
  bool full = false;
  auto doorbell = std::make_shared<Doorbell>([&](std::function<void()> task) {
    if (full) throw std::bad_alloc();
    posted.push_back(std::move(task));
  });
  auto io = [&] {  // what the I/O thread does when it comes
    for (auto& task : std::exchange(posted, {})) task();
  };
  auto a = std::make_shared<Counter>(), b = std::make_shared<Counter>(), gone = std::make_shared<Counter>();
  doorbell->ring(a);
  doorbell->ring(b);
  EXPECT_EQ(posted.size(), 1U);
  io();
  EXPECT_EQ(a->woken + b->woken, 2);
  {
    const Doorbell::Together once;
    doorbell->ring(a);
    doorbell->ring(gone);
    doorbell->ring(b);
    EXPECT_TRUE(posted.empty());
    gone.reset();
  }
  EXPECT_EQ(posted.size(), 1U);
  io();
  EXPECT_EQ(a->woken, 2);
  EXPECT_EQ(b->woken, 2);
  { const Doorbell::Together nobody; }
  EXPECT_TRUE(posted.empty());
  // Whoever was named while no call could be made is woken by the next.
  full = true;
  {
    const Doorbell::Together once;
    doorbell->ring(a);
  }
  EXPECT_THROW(doorbell->ring(a), std::bad_alloc);
  full = false;
  doorbell->ring(b);
  io();
  EXPECT_GE(a->woken, 3);
  EXPECT_EQ(b->woken, 3);
}

TEST(Writing, QuotesEveryTextSoThatJsonReadsItBack) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {'a', static_cast<char>(first), static_cast<char>(second), 'b'};
      std::string quoted;
      append_quoted(quoted, text);
      auto parsed = parse_json(quoted);
      ASSERT_TRUE(parsed.ok()) << first << " " << second;
      if (first < 0x80 && second < 0x80) {
        EXPECT_EQ(std::string(parsed->get_string()), text);
      }
    }
  }
  std::string quoted;
  append_quoted(quoted, "\xF0\x9F\x98\x80 \xE2\x82\xAC \xED\xA0\x80 \xF4\x90\x80\x80 \xC0\xAF \xE2\x82");
  ASSERT_TRUE(parse_json(quoted).ok());
  EXPECT_TRUE(quoted.starts_with("\"\xF0\x9F\x98\x80 \xE2\x82\xAC \xEF\xBF\xBD"));
}

}  // namespace
}  // namespace millrace
