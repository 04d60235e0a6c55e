// Writing a GGUF file (version 3) of any size in little memory: first metadata and the list of tensors are given, then
// the tensors' bytes are streamed in that order, in pieces as small as one likes. The file is written under a temporary
// name and appears under its own only when finish() succeeds. The same calls give the same bytes. One thread.
//
//   GgufWriter writer;
//   TRY_VOID(writer.put("general.architecture", "llama"));   // any number of keys
//   TRY_VOID(writer.add("output_norm.weight", DType::f32, {4096}));
//   TRY_VOID(writer.begin(path));                            // writes the header
//   TRY_VOID(writer.write(bytes));                           // until every tensor has all its bytes
//   TRY_VOID(writer.finish());
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/metadata.h"

namespace millrace {

class GgufWriter {
 public:
  // A key may be given once. "general.alignment" (uint32) sets the alignment of the tensors, 32 otherwise, and comes
  // before them.
  Result<void> put(const MetaEntry& entry);  // as another file has it
  Result<void> put(std::string_view key, std::string_view text);
  Result<void> put(std::string_view key, const char* text) { return put(key, std::string_view(text)); }
  Result<void> put(std::string_view key, bool flag);
  Result<void> put(std::string_view key, uint32_t number);
  Result<void> put(std::string_view key, int32_t number);
  Result<void> put(std::string_view key, uint64_t number);
  Result<void> put(std::string_view key, int64_t number);
  Result<void> put(std::string_view key, float number);
  Result<void> put(std::string_view key, double number);
  Result<void> put(std::string_view key, std::span<const std::string> texts);
  Result<void> put(std::string_view key, std::span<const std::string_view> texts);
  Result<void> put(std::string_view key, std::span<const int32_t> numbers);
  Result<void> put(std::string_view key, std::span<const uint32_t> numbers);
  Result<void> put(std::string_view key, std::span<const float> numbers);

  // The next tensor of the file; shape outermost first, as in StoredTensor.
  Result<void> add(std::string_view name, DType type, std::span<const int64_t> shape);
  Result<void> add(std::string_view name, DType type, std::initializer_list<int64_t> shape) {
    return add(name, type, std::span(shape.begin(), shape.size()));
  }

  uint64_t file_bytes() const;  // what the finished file will have
  std::string header() const;   // all bytes before the first tensor's, as begin() writes them
  // How many tensors have all their bytes, and how many bytes the next one still needs (0 when all are written).
  size_t tensors_written() const { return current_; }
  uint64_t bytes_wanted() const { return current_ < tensors_.size() ? tensors_[current_] - written_ : 0; }

  Result<void> begin(const std::filesystem::path& path);
  // The next bytes of the tensors, in order; may reach over from one tensor into the next.
  Result<void> write(std::span<const std::byte> bytes);
  // An error if bytes are missing. Without it nothing is left behind.
  Result<void> finish();

 private:
  Result<void> open_entry(std::string_view key, MetaType type);
  void append_string(std::string_view text);
  template <class T>
  Result<void> put_number(std::string_view key, MetaType type, T number);
  template <class T>
  Result<void> put_array(std::string_view key, MetaType type, std::span<const T> items);
  Result<void> set_alignment(MetaType type, double number);
  Result<void> close_finished_tensors();

  std::string metadata_bytes_, tensor_bytes_;  // the two halves of the header, encoded
  uint64_t entries_ = 0, alignment_ = 32, data_bytes_ = 0;
  std::unordered_set<std::string> keys_, names_;
  std::vector<uint64_t> tensors_;  // bytes of each
  std::optional<AtomicFile> file_;
  size_t current_ = 0;
  uint64_t written_ = 0;  // of the current tensor
};

}  // namespace millrace
