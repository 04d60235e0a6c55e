// MappedFile: a read-only view of a whole file that somebody else may cut short or write to meanwhile. Reading past
// what is left of such a file would end the process (SIGBUS), so every mapping is known to a handler: it puts zeros
// where the file is gone and remembers that it did. Whoever read asks unchanged() afterwards, before using what came
// out. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/result.h"

namespace millrace {

// What tells two states of a file apart. Not the time its entry changed: replacing a file by renaming another over it
// is the right way to do that, and leaves the bytes of the old one alone. It loses a link then.
struct FileState {
  uint64_t device = 0, inode = 0, size = 0, links = 0;
  int64_t written = 0;  // nanoseconds since 1970
  int64_t changed = 0;  // when its entry was, which nobody can set back; compared while a file is read
  friend bool operator==(const FileState& a, const FileState& b) {
    return a.device == b.device && a.inode == b.inode && a.size == b.size && a.written == b.written;
  }
};

// Valid as long as any copy of the pointer lives. Empty files map to an empty span.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }
  const FileState& state() const { return state_; }  // when it was opened

  // Everything read from bytes() until now is what the file held when it was opened; else an error that says what
  // happened to it.
  Result<void> unchanged() const;

 private:
  MappedFile() = default;
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  FileState state_;
  int fd_ = -1;
  int guard_ = -1;  // its place among the guarded ranges
};

}  // namespace millrace
