#include "base/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>

#include "base/file.h"

namespace millrace {
namespace {

// ---- the guard: mapped ranges, and what the handler of SIGBUS does about them

struct Range {
  std::atomic<uintptr_t> begin{0}, end{0};  // begin 0: not in use
  std::atomic<bool> broken{false};
};

constexpr size_t kMostRanges = 4096;
static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// A signal handler has no other way to know them.
std::array<Range, kMostRanges> ranges;
std::atomic<int> ranges_used{0};  // all beyond were never in use
struct sigaction before_us = {};

// Only what a handler may call: atomics and plain system calls.
void on_bus_error(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const bool of_memory = info->si_code > 0;  // not sent by a process
  for (int i = 0; of_memory && i < ranges_used.load(); ++i) {
    Range& range = ranges[static_cast<size_t>(i)];
    const uintptr_t begin = range.begin.load(), end = range.end.load();
    if (begin == 0 || address < begin || address >= end) continue;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t from = address / page * page, to = (end + page - 1) / page * page;
    range.broken.store(true);
    void* zeros =
        ::mmap(reinterpret_cast<void*>(from), to - from, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = saved;
    if (zeros != MAP_FAILED) return;  // and read on
  }
  // Not ours: as if we had never been here. What caused it happens again, this time to whoever was there before.
  ::sigaction(SIGBUS, &before_us, nullptr);
  if (!of_memory) ::raise(signal);
  errno = saved;
}

std::mutex& guard_mutex() {
  static std::mutex mutex;
  return mutex;
}

// Its place, or -1: there are too many.
int guard(const std::byte* data, size_t size) {
  std::lock_guard lock(guard_mutex());
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &before_us) == 0;
  }();
  if (!installed) return -1;
  for (size_t i = 0; i < kMostRanges; ++i) {
    Range& range = ranges[i];
    if (range.begin.load() != 0) continue;
    const auto begin = reinterpret_cast<uintptr_t>(data);
    range.broken.store(false);
    range.end.store(begin + size);
    range.begin.store(begin);
    if (ranges_used.load() <= static_cast<int>(i)) ranges_used.store(static_cast<int>(i) + 1);
    return static_cast<int>(i);
  }
  return -1;
}

void unguard(int place) {
  std::lock_guard lock(guard_mutex());
  ranges[static_cast<size_t>(place)].begin.store(0);
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  TRY(const OpenedFile file, open_regular(path));
  std::shared_ptr<MappedFile> mapped(new MappedFile());
  mapped->path_ = path;
  mapped->fd_ = file.fd;  // closed with it, however this ends
  mapped->state_ = file.state;
  if (file.state.size > 0) {
    void* data = ::mmap(nullptr, file.state.size, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (data == MAP_FAILED) return os_error(path, "map");
    mapped->data_ = static_cast<const std::byte*>(data);
    mapped->size_ = file.state.size;
    mapped->guard_ = guard(mapped->data_, mapped->size_);
    if (mapped->guard_ < 0)
      return error(Code::io, "{}: more than {} files would be mapped at once", path.string(), kMostRanges);
  }
  return std::shared_ptr<const MappedFile>(std::move(mapped));
}

MappedFile::~MappedFile() {
  if (guard_ >= 0) unguard(guard_);
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) ::close(fd_);
}

Result<void> MappedFile::unchanged() const {
  TRY(const FileState now, state_of(path_, fd_));
  const bool broken = guard_ >= 0 && ranges[static_cast<size_t>(guard_)].broken.load();
  TRY_VOID(millrace::unchanged(path_, state_, now));
  if (!broken) return {};
  return error(Code::io, "{}: a part of it could not be read: look for a failing disk, or a file that changes",
               path_.string());
}

}  // namespace millrace
