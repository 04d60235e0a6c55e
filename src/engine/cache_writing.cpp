#include "engine/cache_writing.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace millrace {
namespace {

Result<void> write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return error(Code::io, "the cache cannot be written: {}", std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

}  // namespace

void CacheWriting::start(int file, Next next, Done done) {
  {
    std::lock_guard lock(mutex_);
    if (!stopped_ && part_ == nullptr) {
      if (thread_.joinable()) thread_.join();  // it has nothing left to do
      part_ = std::make_shared<Piece>();
      thread_ = std::thread([this, file, next = std::move(next), done = std::move(done), part = part_] {
        auto written = write(file, next, part);
        {
          std::lock_guard inside(mutex_);
          part_.reset();
        }
        done(std::move(written));
      });
      return;
    }
  }
  done(error(Code::overloaded, "the cache is being written already"));
}

void CacheWriting::stop() {
  std::thread thread;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    if (part_) {
      std::lock_guard inside(part_->mutex);
      part_->given_up = true;
      part_->came.notify_all();
    }
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

Result<int64_t> CacheWriting::write(int file, const Next& next, const std::shared_ptr<Piece>& part) {
  Digest digest;
  int64_t bytes = 0;
  for (bool more = true; more;) {
    between_([part, next] {
      std::lock_guard lock(part->mutex);
      if (part->given_up) return;
      part->more = next(part->bytes);
      part->there = true;
      part->came.notify_all();
    });
    std::vector<std::byte> taken;
    {
      std::unique_lock lock(part->mutex);
      part->came.wait(lock, [&] { return part->there || part->given_up; });
      if (part->given_up) return error(Code::cancelled, "the engine stopped before the cache was written");
      part->there = false;
      more = part->more;
      taken.swap(part->bytes);
    }
    digest.add(taken);
    bytes += static_cast<int64_t>(taken.size());
    TRY_VOID(write_all(file, taken));
  }
  const Identity end = digest.finish();
  TRY_VOID(write_all(file, std::as_bytes(std::span(end.bytes))));
  return bytes + static_cast<int64_t>(end.bytes.size());
}

}  // namespace millrace
