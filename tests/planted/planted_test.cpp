// Does the simulator find mistakes? Each planted one must show within a thousand seeds. A mistake may end the process
// (a CHECK, a sanitizer), so each is tried in a process of its own.
#include "cache/planted.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "engine/simulate.h"

namespace millrace {
namespace {

constexpr int kSeeds = 1000;
constexpr int kNotFound = 42;

// What became of the simulation with this mistake in it; empty if it was not found.
std::string hunt(Bug bug, int seeds) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  fflush(stdout);
  pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::alarm(300);
    planted_bug = bug;
    SimulationSummary summary = simulate(1, seeds);
    if (summary.failure) {
      printf("seed %ld, step %ld: %s\n", static_cast<long>(summary.failure->seed),
             static_cast<long>(summary.failure->step), summary.failure->what.c_str());
      fflush(stdout);
    }
    ::_exit(summary.failure ? 1 : kNotFound);
  }
  ::close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t count; (count = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<size_t>(count));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_FALSE(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) << "bug " << static_cast<int>(bug) << " hangs";
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) return {};
  return said.empty() ? "it died" : said;
}

TEST(Planted, TheSameCodeWithoutAMistakeHolds) { EXPECT_EQ(hunt(Bug::none, 50), ""); }

TEST(Planted, EveryMistakeIsFoundWithinAThousandSeeds) {
  for (int number = 1; number < static_cast<int>(Bug::count); ++number) {
    std::string found = hunt(static_cast<Bug>(number), kSeeds);
    EXPECT_NE(found, "") << "bug " << number << " was not found in " << kSeeds << " seeds";
    printf("bug %2d: %s\n", number, found.substr(0, std::min(found.find('\n'), size_t{160})).c_str());
  }
}

}  // namespace
}  // namespace millrace
