#include "server/trace.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "server/http.h"

namespace millrace {
namespace {

// The examples and rules of W3C's Trace Context.
TEST(Trace, IsReadAsTheStandardSays) {
  Trace trace;
  ASSERT_TRUE(read_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", trace));
  EXPECT_EQ(trace.trace, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(trace.parent, "b7ad6b7169203331");
  EXPECT_TRUE(trace.sampled);
  ASSERT_TRUE(read_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", trace));
  EXPECT_FALSE(trace.sampled);
  EXPECT_TRUE(read_traceparent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-what-comes-later", trace));
  for (const char* bad : {"", "00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
                          "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                          "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                          "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
                          "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more",
                          "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01"}) {
    Trace untouched;
    EXPECT_FALSE(read_traceparent(bad, untouched)) << bad;
    EXPECT_TRUE(untouched.trace.empty()) << bad;
  }
}

TEST(Trace, IdsAreTakenOrMade) {
  HttpRequest request;
  const std::string made = trace_of(request).id;
  EXPECT_TRUE(made.starts_with("req-"));
  EXPECT_NE(trace_of(request).id, made);
  request.headers = {{"x-request-id", "abc-1.2:3"}};
  EXPECT_EQ(trace_of(request).id, "abc-1.2:3");
  for (const std::string& bad :
       {std::string("a b"), std::string("a\"b"), std::string("a\r\nX: y"), std::string(129, 'a')}) {
    request.headers = {{"x-request-id", bad}};
    EXPECT_TRUE(trace_of(request).id.starts_with("req-")) << bad;
  }
}

// Any bytes at all: a head is never more than read or passed over.
TEST(Trace, TakesWhateverComes) {
  for (uint32_t round = 0; round < 2000; ++round) {
    std::string text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (uint32_t change = 0; change < 3; ++change) {
      const double where = uniform({.seed = 9, .position = round, .draw = 2 * change});
      const double what = uniform({.seed = 9, .position = round, .draw = 2 * change + 1});
      text[static_cast<size_t>(where * static_cast<double>(text.size()))] =
          static_cast<char>(static_cast<int>(what * 256));
    }
    Trace trace;
    if (!read_traceparent(text, trace)) continue;
    EXPECT_EQ(trace.trace.size(), 32u);
    EXPECT_EQ(trace.parent.size(), 16u);
  }
}

TEST(Queries, HaveValues) {
  EXPECT_EQ(query_value("mode=keep&level=2", "mode"), "keep");
  EXPECT_EQ(query_value("mode=keep&level=2", "level"), "2");
  EXPECT_EQ(query_value("mode=keep&level=2", "lev"), "");
  EXPECT_EQ(query_value("mode", "mode"), "");
  EXPECT_EQ(query_value("&&mode=", "mode"), "");
  EXPECT_EQ(query_value("", "mode"), "");
  EXPECT_EQ(query_value("model=org%2Fname%3Atag+b&x", "model"), "org/name:tag b");
  EXPECT_EQ(query_value("model=%4", "model"), "%4");
  EXPECT_EQ(query_value("model=%zz%41", "model"), "%zzA");
}

}  // namespace
}  // namespace millrace
