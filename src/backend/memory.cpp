#include "backend/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace millrace {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

std::string_view purpose_name(Purpose purpose) {
  switch (purpose) {
    case Purpose::weights:
      return "weights";
    case Purpose::kv:
      return "kv";
    case Purpose::workspace:
      return "workspace";
    case Purpose::staging:
      return "staging";
  }
  return "?";
}

Memory::~Memory() {
  for (const Region& region : regions_) munmap(region.address, region.bytes);
}

int64_t Memory::used() const {
  int64_t sum = 0;
  for (int64_t bytes : used_) sum += bytes;
  return sum;
}

Result<void> Memory::charge(Purpose purpose, int64_t bytes) {
  CHECK(bytes >= 0, "{} bytes of {}", bytes, purpose_name(purpose));
  if (bytes > limit_ - used()) {
    return error(Code::no_memory,
                 "{} bytes for {} do not fit: {} of {} bytes are taken; allow more memory or ask for less", bytes,
                 purpose_name(purpose), used(), limit_);
  }
  used_[static_cast<size_t>(purpose)] += bytes;
  return {};
}

Result<std::byte*> Memory::take(Purpose purpose, int64_t bytes) {
  TRY_VOID(charge(purpose, bytes));
  size_t length = static_cast<size_t>(aligned(bytes > 0 ? bytes : 1));
  void* address = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    used_[static_cast<size_t>(purpose)] -= bytes;
    return error(Code::no_memory, "the system refused {} bytes for {}: {}", bytes, purpose_name(purpose),
                 strerror(errno));
  }
  if (bytes >= kHugePage) (void)madvise(address, length, MADV_HUGEPAGE);  // fewer faults while it is first written
  regions_.push_back({address, length});
  return static_cast<std::byte*>(address);
}

Tensor Arena::rows(int64_t rows, int64_t cols) {
  int64_t stride = aligned(cols * static_cast<int64_t>(sizeof(float)));
  return Tensor{bytes(rows * stride), DType::f32, rows, cols, stride};
}

std::byte* Arena::bytes(int64_t bytes) {
  std::byte* place = base_ + top_;
  top_ += aligned(bytes);
  CHECK(top_ <= ceiling_, "workspace of {} bytes is too small: the plan missed something", bytes_);
  return place;
}

std::byte* Arena::until_next_step(int64_t bytes) {
  ceiling_ -= aligned(bytes);
  CHECK(top_ <= ceiling_, "workspace of {} bytes is too small: the plan missed something", bytes_);
  return base_ + ceiling_;
}

}  // namespace millrace
