#include "backend/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/human.h"

namespace millrace {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
// Weights come from regions of many huge pages unless they are large: the end of one by itself lies on small pages,
// which is much of a small one. What stays free is never written, so it takes addresses, not memory.
constexpr int64_t kShared = 32 * kHugePage, kSmall = 8 * kHugePage;

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
    return error(Code::no_memory, "{} for {} do not fit: {} of {} are taken; allow more memory or ask for less",
                 human_bytes(static_cast<uint64_t>(bytes)), purpose_name(purpose),
                 human_bytes(static_cast<uint64_t>(used())), human_bytes(static_cast<uint64_t>(limit_)));
  }
  used_[static_cast<size_t>(purpose)] += bytes;
  return {};
}

// Huge pages mean fewer faults while memory is first written and fewer translations to look up while it is read; they
// start at multiples of their size.
Result<std::byte*> Memory::map(int64_t bytes) {
  bool huge = bytes >= kHugePage;
  size_t length = static_cast<size_t>(bytes + (huge ? kHugePage : 0));
  void* address = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return error(Code::no_memory, "{}", strerror(errno));
  regions_.push_back({address, length});
  if (!huge) return static_cast<std::byte*>(address);
  uintptr_t start = (reinterpret_cast<uintptr_t>(address) + kHugePage - 1) / kHugePage * kHugePage;
  (void)madvise(reinterpret_cast<void*>(start), static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return reinterpret_cast<std::byte*>(start);
}

Result<std::byte*> Memory::take(Purpose purpose, int64_t bytes) {
  TRY_VOID(charge(purpose, bytes));
  int64_t length = aligned(bytes > 0 ? bytes : 1);
  bool shares = purpose == Purpose::weights && length < kSmall;
  if (!shares || length > shared_left_) {
    Result<std::byte*> place = map(shares ? kShared : length);
    if (!place) {
      used_[static_cast<size_t>(purpose)] -= bytes;
      return error(Code::no_memory, "the system refused {} for {}: {}", human_bytes(static_cast<uint64_t>(bytes)),
                   purpose_name(purpose), place.error().message);
    }
    if (!shares) return *place;
    shared_ = *place;
    shared_left_ = kShared;
  }
  std::byte* place = shared_;
  shared_ += length;
  shared_left_ -= length;
  return place;
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
