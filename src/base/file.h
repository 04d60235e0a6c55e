// Files: opening one, reading a small one whole, and writing one so that it appears complete or not at all.
// base/mapped_file.h maps them. Any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "base/result.h"

namespace millrace {

// Opened for reading and known to be a regular file; whoever gets it closes it.
struct OpenedFile {
  int fd;
  FileState state;
};
Result<OpenedFile> open_regular(const std::filesystem::path& path);
Result<FileState> state_of(const std::filesystem::path& path, int fd);
// Two states of one open file, before and after it was read: an error that says what happened to it in between.
Result<void> unchanged(const std::filesystem::path& path, const FileState& before, const FileState& now);
Error os_error(const std::filesystem::path& path, std::string_view what);  // "PATH: cannot WHAT: " and errno in words

// An error if the file changes meanwhile.
Result<std::string> read_file(const std::filesystem::path& path, size_t max_bytes = size_t{256} << 20);

// Writes to a temporary name beside the target; commit() syncs and renames, and without it nothing is left behind.
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::filesystem::path& target, unsigned mode = 0644);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Result<void> write(std::span<const std::byte> bytes);
  Result<void> write(std::string_view text) { return write(std::as_bytes(std::span(text.data(), text.size()))); }
  uint64_t written() const { return written_; }
  Result<void> commit();

 private:
  AtomicFile() = default;
  std::filesystem::path target_, temporary_;
  int fd_ = -1;
  uint64_t written_ = 0;
};

}  // namespace millrace
