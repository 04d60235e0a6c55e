#include "process/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

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
  struct Given {  // their numbers there follow from their order; -1: none
    int socket, shared, files, spare;
  };
  Result<int> run(const std::vector<std::string>& words, const Given& given) {
    // Numbers above all targets, so that none overwrites another.
    ::posix_spawn_file_actions_adddup2(&actions_, given.socket, kEngineSocket);
    ::posix_spawn_file_actions_adddup2(&actions_, given.shared, kEngineSharedFile);
    ::posix_spawn_file_actions_adddup2(&actions_, given.files, kEngineFiles);
    if (given.spare >= 0) ::posix_spawn_file_actions_adddup2(&actions_, given.spare, kEngineSpare);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, given.spare >= 0 ? kEngineSpare + 1 : kEngineSpare);
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

// Closed in the end.
struct File {
  int number = -1;
  ~File() {
    if (number >= 0) ::close(number);
  }
};

// The other end, as the child has it, lies at a number that is not one of its own.
bool make_pair(int kind, int& ours, int& theirs) {
  int pair[2] = {-1, -1};
  if (::socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, pair) != 0) return false;
  ours = pair[0];
  theirs = ::fcntl(pair[1], F_DUPFD_CLOEXEC, kEngineSpare + 1);
  ::close(pair[1]);
  return theirs >= 0;
}

}  // namespace

EngineSockets::EngineSockets(EngineSockets&& other) noexcept
    : socket(std::exchange(other.socket, -1)),
      its_socket(std::exchange(other.its_socket, -1)),
      files(std::exchange(other.files, -1)),
      its_files(std::exchange(other.its_files, -1)) {}

EngineSockets::~EngineSockets() {
  for (int file : {socket, its_socket, files, its_files})
    if (file >= 0) ::close(file);
}

Result<EngineSockets> EngineSockets::make() {
  EngineSockets made;
  if (!make_pair(SOCK_STREAM, made.socket, made.its_socket) || !make_pair(SOCK_SEQPACKET, made.files, made.its_files))
    return error(Code::io, "no socket for the engine: {}", std::strerror(errno));
  ::fcntl(made.socket, F_SETFL, ::fcntl(made.socket, F_GETFL) | O_NONBLOCK);
  return made;
}

SpawnedProcess EngineSockets::spawned(int id) {
  return {.id = id, .socket = std::exchange(socket, -1), .files = std::exchange(files, -1)};
}

Result<SpawnedProcess> spawn_engine(const std::vector<std::string>& words, int shared, bool spare) {
  const File page = {::fcntl(shared, F_DUPFD_CLOEXEC, kEngineSpare + 1)};
  TRY(EngineSockets sockets, EngineSockets::make());
  File spare_end, its_spare_end;
  if (page.number < 0 || (spare && !make_pair(SOCK_SEQPACKET, spare_end.number, its_spare_end.number)))
    return error(Code::io, "no socket for the engine: {}", std::strerror(errno));
  const int yes = 1;  // who says something is told by the system
  if (spare) ::setsockopt(spare_end.number, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes));
  TRY(const int id, Spawning().run(words, {sockets.its_socket, page.number, sockets.its_files, its_spare_end.number}));
  SpawnedProcess spawned = sockets.spawned(id);
  spawned.spare = std::exchange(spare_end.number, -1);
  return spawned;
}

}  // namespace millrace
