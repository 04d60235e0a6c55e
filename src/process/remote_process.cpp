// The process behind an engine: made, waited for, ended, and made again.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "process/remote_engine.h"
#include "process/spawn.h"

namespace millrace {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int kLookMilliseconds = 100;
constexpr int kDeathsOfCopies = 3;  // in a row, without a token; the next comes from the files

}  // namespace

std::string RemoteEngine::how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  return fmt::format("with code {}", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

// Without the lock, since copying a large process takes a while. What it reads is changed by this thread only, and by
// sleep(), which waits until it has returned.
Result<RemoteEngine::Spawned> RemoteEngine::spawn(bool again) {
  Spawned made;
  TRY(made.shared, SharedPageFile::create());
  // What copies die of may be something that all of them have in memory.
  if (again && was_ready_ && quick_deaths_ < kDeathsOfCopies) {
    auto copied = spare_.copy(made.shared.file());
    if (copied.ok()) made.process = *copied;
    if (!copied.ok() && command_.spare && log_)
      log_(fmt::format("the engine is started from its files: {}", copied.error().message));
  }
  if (made.process.id == 0) {
    TRY(made.process, spawn_from_files(again, made.shared.file()));
  }
  return made;
}

void RemoteEngine::install(Spawned made) {
  shared_ = std::move(made.shared);
  process_ = {};
  process_.id = made.process.id;
  process_.socket = made.process.socket;
  process_.files = made.process.files;
  process_.began = shared_now();
  last_awake_ = 0;
  still_ = 0;
}

Result<SpawnedProcess> RemoteEngine::spawn_from_files(bool again, int shared) {
  spare_.end();
  std::vector<std::string> words = command_.words;
  const std::vector<std::string>& more = again ? command_.words_again : command_.words_first;
  words.insert(words.end(), more.begin(), more.end());
  // Whatever it found at its start may be what it died of.
  if (again && !was_ready_) words.insert(words.end(), command_.words_bare.begin(), command_.words_bare.end());
  TRY(const SpawnedProcess spawned, spawn_engine(words, shared, command_.spare));
  spare_ = Spare(spawned.spare);
  return spawned;
}

void RemoteEngine::close_sockets() {
  for (int* socket : {&process_.socket, &process_.files})
    if (const int file = std::exchange(*socket, -1); file >= 0) ::close(file);
}

// Ends the process, if there is one, and waits for it.
void RemoteEngine::end_process(int signal) {
  close_sockets();
  if (process_.id == 0) return;
  ::kill(process_.id, signal);
  int status = 0;
  while (::waitpid(process_.id, &status, 0) < 0 && errno == EINTR) {
  }
  process_.id = 0;
}

// Before the thread is there: the first process loads.
Result<void> RemoteEngine::await_ready(const std::function<bool()>& go_on) {
  while (!process_.ready) {
    if (!go_on()) return error(Code::cancelled, "stopped while the model was loaded");
    pollfd poll = {.fd = process_.socket, .events = POLLIN, .revents = 0};
    ::poll(&poll, 1, kLookMilliseconds);
    std::array<char, 4096> room;
    const ssize_t count = ::recv(process_.socket, room.data(), room.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) {
      int status = 0;
      while (::waitpid(process_.id, &status, 0) < 0 && errno == EINTR) {
      }
      process_.id = 0;
      return error(Code::internal, "the engine's process ended {} while it loaded the model", how_it_ended(status));
    }
    process_.arrived.add({room.data(), static_cast<size_t>(count)});
    TRY(auto bytes, process_.arrived.next());
    if (!bytes) continue;
    TRY(Frame frame, read_frame(*bytes));
    if (const auto* failed = std::get_if<FailedFrame>(&frame)) return failed->error;
    const auto* ready = std::get_if<ReadyFrame>(&frame);
    if (ready == nullptr) return error(Code::internal, "the engine said something else than that it is ready");
    first_ = *ready;
    tokens_ = ready->tokens;
    adapters_ = ready->adapters;
    process_.ready = true;
    process_.ready_at = shared_now();
  }
  first_load_ = shared_now() - process_.began;
  return {};
}

// The socket is closed: the process has ended or is about to.
int RemoteEngine::await_end() {
  int status = 0;
  for (int tries = 0; tries < 100; ++tries) {
    const pid_t found = ::waitpid(process_.id, &status, WNOHANG);
    if (found == process_.id) return status;
    ::poll(nullptr, 0, 10);
  }
  kill_process();
  while (::waitpid(process_.id, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

void RemoteEngine::kill_process() {
  process_.killed = true;
  ::kill(process_.id, SIGKILL);
}

void RemoteEngine::revive() {
  {
    std::lock_guard lock(mutex_);
    if (process_.id != 0 || for_good_ || stopping_ || asleep_ || shared_now() < try_at_) return;
    spawning_ = true;
  }
  auto spawned = spawn(true);
  std::lock_guard lock(mutex_);
  spawning_ = false;
  buried_.notify_all();
  if (spawned.ok()) {
    install(std::move(*spawned));
    if (asleep_) ::kill(process_.id, SIGKILL);  // who wants that waits until it is buried
  } else {
    try_at_ = shared_now() + kSecond;
    if (log_ && !given_up_) log_(spawned.error().message);
    start_failed(spawned.error(), false);
  }
}

}  // namespace millrace
