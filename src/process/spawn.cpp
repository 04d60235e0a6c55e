#include "process/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "process/engine_child.h"

extern char** environ;

namespace millrace {
namespace {

class Spawning {
 public:
  Spawning() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
  }
  ~Spawning() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  Result<int> run(const std::vector<std::string>& words, int socket, int shared, int files) {
    // Numbers above all targets, so that none overwrites another.
    ::posix_spawn_file_actions_adddup2(&actions_, socket, kEngineSocket);
    ::posix_spawn_file_actions_adddup2(&actions_, shared, kEngineSharedFile);
    ::posix_spawn_file_actions_adddup2(&actions_, files, kEngineFiles);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, kEngineFiles + 1);
    sigset_t ignored;
    sigemptyset(&ignored);
    sigaddset(&ignored, SIGINT);
    sigaddset(&ignored, SIGTERM);
    ::posix_spawnattr_setsigmask(&attributes_, &ignored);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
    std::vector<char*> pointers;
    for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    std::vector<char*> variables;  // the clients' key is none of its business
    for (char** each = environ; *each != nullptr; ++each)
      if (!std::string_view(*each).starts_with("MILLRACE_API_KEY")) variables.push_back(*each);
    variables.push_back(nullptr);
    pid_t id = 0;
    const int failed = ::posix_spawn(&id, "/proc/self/exe", &actions_, &attributes_, pointers.data(), variables.data());
    if (failed != 0) return error(Code::io, "the engine's process cannot be started: {}", std::strerror(failed));
    return id;
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Files that are closed in the end, whatever happens.
struct Files {
  std::array<int, 5> all = {-1, -1, -1, -1, -1};
  ~Files() {
    for (int file : all)
      if (file >= 0) ::close(file);
  }
};

// The other end, as the child has it, lies at a number that is not one of its own.
bool make_pair(int kind, int& ours, int& theirs) {
  int pair[2] = {-1, -1};
  if (::socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, pair) != 0) return false;
  ours = pair[0];
  theirs = ::fcntl(pair[1], F_DUPFD_CLOEXEC, kEngineFiles + 1);
  ::close(pair[1]);
  return theirs >= 0;
}

}  // namespace

Result<SpawnedProcess> spawn_engine(const std::vector<std::string>& words, int shared) {
  Files files;
  auto& [socket, its_socket, channel, its_channel, page] = files.all;
  page = ::fcntl(shared, F_DUPFD_CLOEXEC, kEngineFiles + 1);
  if (page < 0 || !make_pair(SOCK_STREAM, socket, its_socket) || !make_pair(SOCK_SEQPACKET, channel, its_channel))
    return error(Code::io, "no socket for the engine: {}", std::strerror(errno));
  TRY(const int id, Spawning().run(words, its_socket, page, its_channel));
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
  return SpawnedProcess{.id = id, .socket = std::exchange(socket, -1), .files = std::exchange(channel, -1)};
}

}  // namespace millrace
