#include "process/spare.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "process/engine_child.h"
#include "process/passed_files.h"
#include "process/shared_page.h"

namespace millrace {
namespace {

// What is said to the server, a byte each: that there is a spare, by it; that there is a copy, by the copy; that the
// copy has become the server's child, or that there is none, by the spare.
constexpr char kHere = 'h', kCopied = 'c', kDone = 'd', kFailed = 'f';
// On a machine that has too much to do, where everything else would take longer than to wait.
constexpr int64_t kPatience = 5'000'000'000;  // nanoseconds
constexpr int kTriesForOneThread = 3000;      // of a millisecond

void say(char what) { static_cast<void>(::send(kEngineSpare, &what, 1, MSG_NOSIGNAL)); }

void wait_for(int id) {
  while (::waitpid(id, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// A thread that was joined may be seen for a moment longer.
bool has_one_thread() {
  for (int tries = 0; tries < kTriesForOneThread; ++tries) {
    std::error_code failed;
    const std::filesystem::directory_iterator tasks("/proc/self/task", failed);
    if (failed) return false;
    if (std::distance(begin(tasks), end(tasks)) == 1) return true;
    ::usleep(1000);
  }
  return false;
}

// The engine's numbers, whatever numbers they came with.
bool put_in_place(std::array<int, 3>& files) {
  constexpr std::array kNumbers = {kEngineSocket, kEngineSharedFile, kEngineFiles};
  for (int& file : files) {
    const int above = ::fcntl(file, F_DUPFD_CLOEXEC, kEngineSpare + 1);
    ::close(file);
    file = above;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i] < 0 || ::dup2(files[i], kNumbers[i]) < 0) return false;
    ::close(files[i]);
  }
  return true;
}

// A copy whose parent ends at once, so that it comes to the server. True in the copy.
bool copy_self(std::array<int, 3>& files) {
  const pid_t between = ::fork();
  if (between == 0) {
    const pid_t copy = ::fork();
    if (copy != 0) ::_exit(copy < 0 ? 1 : 0);
    ::prctl(PR_SET_NAME, "millrace");
    if (!put_in_place(files)) ::_exit(1);
    say(kCopied);
    ::close(kEngineSpare);
    return true;
  }
  int status = 1;
  if (between > 0)
    while (::waitpid(between, &status, 0) < 0 && errno == EINTR) {
    }
  say(status == 0 ? kDone : kFailed);
  return false;
}

}  // namespace

// ---- the engine's side ----

void leave_spare() {
  if (::fcntl(kEngineSpare, F_GETFD) < 0) return;
  if (!has_one_thread() || ::fork() != 0) {
    ::close(kEngineSpare);
    return;
  }
  // The server sees an engine end by its files, so nobody else may have them.
  for (int file : {kEngineSocket, kEngineSharedFile, kEngineFiles}) ::close(file);
  ::prctl(PR_SET_NAME, "millrace-spare");
  say(kHere);
  for (;;) {
    std::array<int, 3> files = {-1, -1, -1};
    if (!receive_files(kEngineSpare, files, true).ok()) ::_exit(0);
    if (copy_self(files)) return;
    for (int file : files) ::close(file);
  }
}

// ---- the server's side ----

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

Spare& Spare::operator=(Spare&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(id_, other.id_);
  return *this;
}

// The next thing that is said, until then.
Result<Spare::Said> Spare::hear(int64_t until) {
  const int64_t left = std::max<int64_t>(0, until - shared_now());
  pollfd wait = {.fd = socket_, .events = POLLIN, .revents = 0};
  if (::poll(&wait, 1, static_cast<int>(left / 1'000'000)) <= 0)
    return error(Code::io, "the process that keeps the weights does not answer");
  Said said;
  iovec part = {.iov_base = &said.what, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> room = {};
  msghdr head = {};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = room.data();
  head.msg_controllen = room.size();
  const ssize_t count = ::recvmsg(socket_, &head, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const cmsghdr* const from = count == 1 ? CMSG_FIRSTHDR(&head) : nullptr;
  if (from == nullptr || from->cmsg_level != SOL_SOCKET || from->cmsg_type != SCM_CREDENTIALS)
    return error(Code::io, "the process that keeps the weights is gone");
  ucred who = {};
  std::memcpy(&who, CMSG_DATA(from), sizeof(who));
  said.by = who.pid;
  if (said.what == kHere) id_ = said.by;
  return said;
}

Result<int> Spare::hear_of_copy() {
  const int64_t until = shared_now() + kPatience;
  int copy = 0;
  for (bool done = false; copy == 0 || !done;) {
    auto said = hear(until);
    if (!said.ok() || said->what == kFailed) {
      if (copy != 0) {
        ::kill(copy, SIGKILL);
        wait_for(copy);
      }
      return said.ok() ? error(Code::no_memory, "the process that keeps the weights cannot be copied") : said.error();
    }
    if (said->what == kCopied) copy = said->by;
    done |= said->what == kDone;
  }
  return copy;
}

Result<SpawnedProcess> Spare::copy(int shared) {
  if (socket_ < 0) return error(Code::not_found, "no process keeps the weights");
  TRY(EngineSockets sockets, EngineSockets::make());
  TRY_VOID(send_files(socket_, std::array{sockets.its_socket, shared, sockets.its_files}, false));
  TRY(const int id, hear_of_copy());
  return sockets.spawned(id);
}

void Spare::end() {
  if (socket_ < 0) return;
  while (id_ == 0 && hear(0).ok()) {
  }
  ::close(std::exchange(socket_, -1));
  if (const int id = std::exchange(id_, 0); id != 0) {
    ::kill(id, SIGKILL);
    wait_for(id);
  }
}

}  // namespace millrace
