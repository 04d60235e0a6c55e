// Open files between processes, and how long a step may take that nobody has measured.
#include "process/passed_files.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "process/engine_child.h"

namespace millrace {
namespace {

struct Pair {
  std::array<int, 2> ends = {-1, -1};
  Pair() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0); }
  ~Pair() {
    for (int end : ends) ::close(end);
  }
};

ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

TEST(PassedFiles, AreTheSameOpenFiles) {
  const Pair pair;
  std::array<int, 2> pipe = {-1, -1}, got = {-1, -1};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  ASSERT_TRUE(send_files(pair.ends[0], pipe, true).ok());
  ASSERT_TRUE(receive_files(pair.ends[1], got, false).ok());
  ASSERT_EQ(::write(got[1], "x", 1), 1);
  char byte = 0;
  ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  for (int file : {pipe[0], pipe[1], got[0], got[1]}) EXPECT_EQ(::close(file), 0);
}

TEST(PassedFiles, OtherNumbersAreRefusedAndKeepNothingOpen) {
  const Pair pair;
  std::array<int, 3> three = {0, 1, 2};
  std::array<int, 1> one = {-1};
  const ptrdiff_t before = open_files();
  EXPECT_FALSE(receive_files(pair.ends[1], one, false).ok());  // nothing was sent
  ASSERT_TRUE(send_files(pair.ends[0], three, true).ok());
  EXPECT_FALSE(receive_files(pair.ends[1], one, true).ok());
  ASSERT_TRUE(send_files(pair.ends[0], {three.data(), 1}, true).ok());
  EXPECT_FALSE(receive_files(pair.ends[1], three, true).ok());
  ASSERT_EQ(::send(pair.ends[0], "f", 1, 0), 1);  // and none at all
  EXPECT_FALSE(receive_files(pair.ends[1], one, true).ok());
  EXPECT_EQ(one[0], -1);
  EXPECT_EQ(open_files(), before);
}

TEST(Untried, StepsMayTakeWhatASlowMachineNeeds) {
  constexpr int64_t kSecond = 1'000'000'000;
  EXPECT_EQ(allowed_untried(0, 1), 120 * kSecond);  // nothing is known
  EXPECT_EQ(allowed_untried(14'000'000, 1), 15 * kSecond + 28'000'000);
  EXPECT_GE(allowed_untried(14'000'000, 512), 29 * kSecond);
  EXPECT_EQ(allowed_untried(8'000'000'000, 512), 120 * kSecond);
  EXPECT_EQ(allowed_untried(INT64_MAX, INT64_MAX), 120 * kSecond);
}

}  // namespace
}  // namespace millrace
