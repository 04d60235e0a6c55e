// A process that has something in memory leaves a copy of itself, from which others are made after it has died.
#include "process/spare.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>

#include "process/engine_child.h"

namespace millrace {
namespace {

int files_open(int first, int last) {
  int count = 0;
  for (int file = first; file <= last; ++file) count += ::fcntl(file, F_GETFD) >= 0;
  return count;
}

// What an engine does: it gets something into memory, leaves a spare, and says over its socket what it has, which
// process wrote it, and which files it was given, until the server is gone.
[[noreturn]] void be_engine(int socket, int spare, bool second_thread) {
  std::array<int, 2> ends = {::fcntl(socket, F_DUPFD, 20), ::fcntl(spare, F_DUPFD, 20)};
  for (int file = 3; file < 20; ++file) ::close(file);
  ::dup2(ends[0], kEngineSocket);
  ::dup2(ends[1], kEngineSpare);
  for (int end : ends) ::close(end);
  const std::string content = "weights";
  const pid_t writer = ::getpid();
  std::thread other;
  if (second_thread) other = std::thread([] { ::pause(); });
  leave_spare();
  std::string said = content + (writer == ::getpid() ? " first" : " copy");
  // A copy has its socket, page and files, and nothing else.
  if (writer != ::getpid()) said += files_open(3, 5) == 3 && files_open(6, 64) == 0 ? " tidy" : " untidy";
  static_cast<void>(!::write(kEngineSocket, said.data(), said.size()));
  char byte = 0;
  static_cast<void>(!::read(kEngineSocket, &byte, 1));
  ::_exit(0);
}

std::string read_some(int socket) {
  for (int tries = 0; tries < 5000; ++tries) {
    std::array<char, 64> room;
    const ssize_t count = ::read(socket, room.data(), room.size());
    if (count >= 0) return {room.data(), static_cast<size_t>(count)};
    ::usleep(1000);
  }
  return "nothing";
}

struct World {
  std::array<int, 2> socket = {-1, -1}, spare = {-1, -1};
  int page = ::memfd_create("page", MFD_CLOEXEC);
  pid_t engine = 0;

  explicit World(bool second_thread = false) {
    adopt_orphans();
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, socket.data()), 0);
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, spare.data()), 0);
    const int yes = 1;
    EXPECT_EQ(::setsockopt(spare[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)), 0);
    engine = ::fork();
    if (engine == 0) be_engine(socket[1], spare[1], second_thread);
    ::close(socket[1]);
    ::close(spare[1]);
  }
  void kill_engine() const {
    ::kill(engine, SIGKILL);
    EXPECT_EQ(::waitpid(engine, nullptr, 0), engine);
  }
  ~World() {
    ::close(socket[0]);
    ::close(page);
  }
};

TEST(Spare, CopiesOutliveTheEngineAndAreChildrenOfTheServer) {
  const World world;
  EXPECT_EQ(read_some(world.socket[0]), "weights first");
  Spare spare(world.spare[0]);
  world.kill_engine();
  // The server sees that it has ended although the spare is there.
  EXPECT_EQ(read_some(world.socket[0]), "");
  for (int turn = 0; turn < 20; ++turn) {
    auto copy = spare.copy(world.page);
    ASSERT_TRUE(copy.ok()) << copy.error().message;
    EXPECT_EQ(read_some(copy->socket), "weights copy tidy");
    ::kill(copy->id, SIGKILL);
    EXPECT_EQ(::waitpid(copy->id, nullptr, 0), copy->id);
    EXPECT_EQ(read_some(copy->socket), "");
    ::close(copy->socket);
    ::close(copy->files);
  }
  spare.end();
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "something was left";
  EXPECT_FALSE(spare.copy(world.page).ok());
}

TEST(Spare, IsNotLeftByAProcessWithThreads) {
  const World world(true);
  EXPECT_EQ(read_some(world.socket[0]), "weights first");
  Spare spare(world.spare[0]);
  const auto copy = spare.copy(world.page);
  EXPECT_FALSE(copy.ok());
  world.kill_engine();
}

TEST(Spare, ThatWasKilledIsAnErrorAndNothingIsLeft) {
  const World world;
  EXPECT_EQ(read_some(world.socket[0]), "weights first");
  Spare spare(world.spare[0]);
  auto copy = spare.copy(world.page);
  ASSERT_TRUE(copy.ok());
  world.kill_engine();
  ::close(copy->socket);
  ::close(copy->files);
  EXPECT_EQ(::waitpid(copy->id, nullptr, 0), copy->id);
  spare.end();
  spare.end();
  EXPECT_FALSE(spare.copy(world.page).ok());
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

}  // namespace
}  // namespace millrace
