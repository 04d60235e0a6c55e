#include "base/read_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14; older systems refuse it, and then asking for the pages has to do
#endif

namespace millrace {
namespace {

constexpr size_t kPiece = size_t{8} << 20;
constexpr int64_t kAhead = int64_t{512} << 20;
constexpr int64_t kWorthIt = int64_t{64} << 20;
constexpr int kThreads = 4;  // pieces on their way at a time

// Whole pages around it.
std::span<std::byte> pages_of(std::span<const std::byte> bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size() + page - 1) / page * page;
  return {reinterpret_cast<std::byte*>(begin), end - begin};
}

bool in_memory(std::span<std::byte> pages, std::vector<unsigned char>& room) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  room.resize(pages.size() / page);
  return ::mincore(pages.data(), pages.size(), room.data()) == 0 &&
         std::ranges::all_of(room, [](unsigned char one) { return (one & 1) != 0; });
}

}  // namespace

ReadAhead::ReadAhead(std::vector<std::span<const std::byte>> parts) {
  int64_t bytes = 0;
  for (std::span<const std::byte> left : parts) {
    before_.push_back(bytes);
    while (!left.empty()) {
      const Piece piece = left.first(std::min(left.size(), kPiece));
      left = left.subspan(piece.size());
      bytes += static_cast<int64_t>(piece.size());
      pieces_.push_back(piece);
      ends_.push_back(bytes);
    }
  }
  before_.push_back(bytes);
  if (bytes < kWorthIt) return;
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { work(); });
}

ReadAhead::~ReadAhead() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  moved_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReadAhead::read(size_t parts) {
  {
    std::lock_guard lock(mutex_);
    read_ = before_[std::min(parts, before_.size() - 1)];
  }
  moved_.notify_all();
}

bool ReadAhead::done() const {
  std::lock_guard lock(mutex_);
  return brought_ == pieces_.size();
}

// Waits until the next one is near enough; those that were read meanwhile are passed over. False: there is no more.
bool ReadAhead::take(Piece& piece) {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (next_ < pieces_.size() && ends_[next_] <= read_) {
      ++next_;
      ++brought_;
    }
    if (stopping_ || next_ == pieces_.size()) return false;
    if (ends_[next_] <= read_ + kAhead) break;
    moved_.wait(lock);
  }
  piece = pieces_[next_++];
  return true;
}

// Errors are for whoever reads the bytes: a file may have become shorter meanwhile.
void ReadAhead::work() {
  std::vector<unsigned char> room;
  for (Piece piece; take(piece);) {
    const std::span<std::byte> pages = pages_of(piece);
    if (!in_memory(pages, room)) {
      // The first asks for all of it at once, the second waits until it is there.
      (void)::madvise(pages.data(), pages.size(), MADV_WILLNEED);
      (void)::madvise(pages.data(), pages.size(), MADV_POPULATE_READ);
    }
    std::lock_guard lock(mutex_);
    ++brought_;
  }
}

}  // namespace millrace
