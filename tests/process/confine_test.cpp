#include "process/confine.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <thread>

namespace millrace {
namespace {

bool refused(int result) { return result < 0 && errno == EPERM; }

// What a confined process can do, as bits; it cannot tell otherwise.
int tried(const char* file) {
  if (!confine().ok()) return 64;
  int found = 0;
  found |= refused(::socket(AF_INET, SOCK_STREAM, 0)) ? 1 : 0;
  found |= refused(::open(file, O_WRONLY)) && refused(::open(file, O_RDWR | O_CREAT, 0600)) ? 2 : 0;
  char* const words[] = {nullptr};
  found |= refused(::execv("/bin/true", words)) ? 4 : 0;
  found |= refused(::unlink(file)) ? 8 : 0;
  char byte = 0;
  const int reads = ::open(file, O_RDONLY);
  found |= reads >= 0 && ::read(reads, &byte, 1) == 1 ? 16 : 0;
  bool ran = false;
  std::thread([&] { ran = true; }).join();
  return found | (ran ? 32 : 0);
}

TEST(Confine, TakesTheNetworkProgramsAndWritingAndLeavesReadingAndThreads) {
  const std::string file = testing::TempDir() + "confined";
  std::ofstream(file) << "x";
  const pid_t child = ::fork();
  if (child == 0) ::_exit(tried(file.c_str()));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 64) GTEST_SKIP() << "this system has no seccomp filters";
  EXPECT_EQ(WEXITSTATUS(status), 63);
  ::unlink(file.c_str());
}

TEST(Confine, IsEndedBeforeOthersWhenMemoryRunsOut) {
  const pid_t child = ::fork();
  if (child == 0) {
    end_first();
    int score = 0;
    std::ifstream("/proc/self/oom_score_adj") >> score;
    ::_exit(score == 500 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace millrace
