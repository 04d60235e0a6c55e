#include "process/mpi_engine.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "process/engine_child.h"
#include "process/passed_files.h"

namespace millrace {
namespace {

constexpr const char* kPlace = "MILLRACE_ENGINE_AT";  // where the first rank finds the engine's files
constexpr std::array<int, 3> kEngineNumbers = {kEngineSocket, kEngineSharedFile, kEngineFiles};
constexpr int kLookMilliseconds = 100;

struct File {
  int number = -1;
  File() = default;
  explicit File(int opened) : number(opened) {}
  File(File&& other) noexcept : number(std::exchange(other.number, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(number, other.number);
    return *this;
  }
  ~File() {
    if (number >= 0) ::close(number);
  }
};

// A name that no file stands for: it goes with the socket. The first byte is 0.
struct SocketName {
  sockaddr_un address = {};
  socklen_t bytes = 0;
  explicit SocketName(std::string_view name) {
    address.sun_family = AF_UNIX;
    const size_t count = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), count);
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  }
  const sockaddr* pointer() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Result<std::string> new_name() {
  std::array<uint8_t, 16> bytes = {};
  if (::getrandom(bytes.data(), bytes.size(), 0) != std::ssize(bytes))
    return error(Code::io, "no random name for the engine's socket: {}", std::strerror(errno));
  std::string name = "millrace-engine-";
  for (uint8_t byte : bytes) name += fmt::format("{:02x}", byte);
  return name;
}

Result<File> listen_at(const std::string& name) {
  File listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const SocketName place(name);
  if (listener.number < 0 || ::bind(listener.number, place.pointer(), place.bytes) != 0 ||
      ::listen(listener.number, 4) != 0)
    return error(Code::io, "no socket for the first rank: {}", std::strerror(errno));
  return listener;
}

// Between fork and exec: calls of the system only. Of mpirun's own group, so that Ctrl-C is for the server alone.
[[noreturn]] void become_mpirun(pid_t parent, char* const* words, char* const* variables) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (const int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::closefrom(STDERR_FILENO + 1);
  ::execvpe(words[0], words, variables);
  ::_exit(127);
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

Result<std::vector<std::string>> mpirun_words(const MpiLaunch& launch, const std::vector<std::string>& words) {
  std::error_code failed;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", failed).string();
  if (failed) return error(Code::io, "where this program lies cannot be told: {}", failed.message());
  std::vector<std::string> all = {"mpirun", "--quiet", "-np", std::to_string(launch.ranks), "--bind-to", "none"};
  if (!launch.hostfile.empty()) all.insert(all.end(), {"--hostfile", launch.hostfile});
  std::istringstream options(launch.options);
  for (std::string word; options >> word;) all.push_back(word);
  all.push_back(program);
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

bool mine(int socket) {
  ucred who = {};
  socklen_t bytes = sizeof(who);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == ::geteuid();
}

}  // namespace

int rank_by_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    const char* const text = std::getenv(name);
    if (text == nullptr) continue;
    int rank = -1;
    const std::string_view word = text;
    if (std::from_chars(word.data(), word.data() + word.size(), rank).ec == std::errc()) return rank;
  }
  return -1;
}

Result<int> run_mpi_engine(const MpiLaunch& launch, const std::vector<std::string>& words) {
  TRY(const std::string name, new_name());
  TRY(const File listener, listen_at(name));
  TRY(std::vector<std::string> all, mpirun_words(launch, words));
  std::vector<std::string> set;
  for (char** each = environ; *each != nullptr; ++each) set.emplace_back(*each);
  set.push_back(fmt::format("{}={}", kPlace, name));
  const std::vector<char*> word_pointers = pointers_to(all), variables = pointers_to(set);
  const pid_t self = ::getpid(), job = ::fork();
  if (job == 0) become_mpirun(self, word_pointers.data(), variables.data());
  if (job < 0) return error(Code::io, "mpirun cannot be started: {}", std::strerror(errno));
  bool handed = false;
  for (int status = 0;;) {
    const pid_t ended = ::waitpid(job, &status, handed ? 0 : WNOHANG);
    if (ended < 0 && errno == EINTR) continue;
    if (ended == job && code_of(status) == 127 && !handed)
      return error(Code::not_found, "there is no mpirun here: install openmpi-bin, or use --transport threads");
    if (ended == job && !handed)
      return error(Code::io, "mpirun ended with code {} before its first rank was there; its own message says why",
                   code_of(status));
    if (ended != 0) return code_of(status);
    pollfd wait = {.fd = listener.number, .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, kLookMilliseconds);
    const File guest(::accept4(listener.number, nullptr, nullptr, SOCK_CLOEXEC));
    if (guest.number < 0 || !mine(guest.number) || !send_files(guest.number, kEngineNumbers, true).ok()) continue;
    handed = true;
    // The server must see the first rank end, so this process keeps none of them.
    for (int file : kEngineNumbers) ::close(file);
  }
}

Result<void> take_engine_files() {
  const char* const name = std::getenv(kPlace);
  if (name == nullptr)
    return error(Code::invalid, "`millrace serve` starts this job for itself: {} is not set", kPlace);
  File socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const SocketName place(name);
  if (socket.number < 0 || ::connect(socket.number, place.pointer(), place.bytes) != 0)
    return error(Code::io,
                 "the first rank does not find the server that started it ({}): it must run on the same machine, so "
                 "that machine comes first in the hostfile",
                 std::strerror(errno));
  std::array<int, kEngineNumbers.size()> files = {-1, -1, -1};
  if (auto handed = receive_files(socket.number, files, true); !handed.ok())
    return within("the first rank was not handed the engine's files", handed.error());
  // Above all targets first, so that none overwrites another.
  std::array<File, kEngineNumbers.size()> above;
  for (size_t i = 0; i < files.size(); ++i) {
    above[i] = File(::fcntl(files[i], F_DUPFD_CLOEXEC, kEngineFiles + 8));
    ::close(files[i]);
  }
  ::close(std::exchange(socket.number, -1));  // it may have one of the numbers itself
  for (size_t i = 0; i < files.size(); ++i) {
    if (above[i].number < 0 || ::dup2(above[i].number, kEngineNumbers[i]) < 0)
      return error(Code::io, "the engine's files cannot be put in place: {}", std::strerror(errno));
  }
  return {};
}

}  // namespace millrace
