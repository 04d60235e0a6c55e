// Files: a read-only memory map, reading a small file whole, and writing one so that it appears complete or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

// A read-only view of a whole file, valid as long as any copy of the pointer lives. Empty files map to an empty span.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile() = default;
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

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
