#include "process/shared_page.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace millrace {

int64_t shared_now() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void SharedPage::show(const EngineSnapshot& snapshot) {
  const uint64_t next = shown.load(std::memory_order_relaxed) + 1;
  figures[next % 2] = {snapshot, shared_now()};
  shown.store(next, std::memory_order_release);
}

// The writer must come round twice to spoil what is being read; then it is read again.
SharedPage::Figures SharedPage::seen() {
  for (;;) {
    const uint64_t before = shown.load(std::memory_order_acquire);
    Figures copy = figures[before % 2];
    // Adds nothing, but is not done before the copy is. A fence would do, if ThreadSanitizer knew them.
    if (shown.fetch_add(0, std::memory_order_acq_rel) == before) return copy;
  }
}

Result<SharedPageFile> SharedPageFile::map(int file, bool fresh) {
  SharedPageFile made;
  made.file_ = file;
  void* const memory = ::mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return error(Code::io, "no memory to share with the engine: {}", std::strerror(errno));
  made.page_ = fresh ? new (memory) SharedPage : static_cast<SharedPage*>(memory);
  return made;
}

Result<SharedPageFile> SharedPageFile::create() {
  const int file = ::memfd_create("millrace-engine", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, sizeof(SharedPage)) != 0) {
    const int why = errno;
    if (file >= 0) ::close(file);
    return error(Code::io, "no memory to share with the engine: {}", std::strerror(why));
  }
  return map(file, true);
}

Result<SharedPageFile> SharedPageFile::open(int file) { return map(file, false); }

SharedPageFile& SharedPageFile::operator=(SharedPageFile&& other) noexcept {
  std::swap(page_, other.page_);
  std::swap(file_, other.file_);
  return *this;
}

SharedPageFile::~SharedPageFile() {
  if (page_ != nullptr) ::munmap(page_, sizeof(SharedPage));
  if (file_ >= 0) ::close(file_);
}

}  // namespace millrace
