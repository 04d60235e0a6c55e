// Writing a safetensors file in little memory: first the list of tensors is given, then their bytes are streamed in
// that order. The file is written under a temporary name and appears under its own only when finish() succeeds. One
// thread.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "tensor/dtype.h"

namespace millrace {

class SafetensorsWriter {
 public:
  // Refused: a name that was given before, a format that these files have no name for.
  Result<void> add(std::string_view name, DType type, std::span<const int64_t> shape);
  uint64_t data_bytes() const { return data_bytes_; }
  uint64_t file_bytes() const { return 8 + header().size() + data_bytes_; }

  Result<void> begin(const std::filesystem::path& path);
  Result<void> write(std::span<const std::byte> bytes);
  // An error if bytes are missing. Without it nothing is left behind.
  Result<void> finish();

 private:
  std::string header() const;  // padded to eight bytes

  std::string entries_;
  std::set<std::string, std::less<>> names_;
  uint64_t data_bytes_ = 0, written_ = 0;
  std::optional<AtomicFile> file_;
};

}  // namespace millrace
