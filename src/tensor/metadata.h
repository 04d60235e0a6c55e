// Metadata: the key-value pairs of a GGUF file, in file order. Strings and arrays are views into the mapped file, so a
// vocabulary of 200,000 words costs nothing until it is read. Immutable once parsed; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace millrace {

// GGUF's numbers, in its order.
// clang-format off
enum class MetaType : uint8_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
// clang-format on

std::string_view meta_type_name(MetaType type);
size_t meta_type_bytes(MetaType type);  // of one value; 0 for strings and arrays

// An array of a scalar type or of strings (arrays of arrays are refused). Elements were checked when the file was read.
class MetaArray {
 public:
  MetaArray() = default;
  MetaArray(MetaType type, uint64_t count, std::span<const std::byte> bytes);

  MetaType type() const { return type_; }
  uint64_t size() const { return count_; }
  std::span<const std::byte> bytes() const { return bytes_; }  // the elements as they lie in the file
  // Each gives an error if the elements are of another kind. Integers of any width widen; floats too.
  Result<std::vector<std::string_view>> strings() const;
  Result<std::vector<int64_t>> integers() const;
  Result<std::vector<float>> floats() const;

 private:
  MetaType type_ = MetaType::u8;
  uint64_t count_ = 0;
  std::span<const std::byte> bytes_;
};

using MetaValue = std::variant<bool, int64_t, uint64_t, double, std::string_view, MetaArray>;

struct MetaEntry {
  std::string_view key;
  MetaType type;
  MetaValue value;
};

class Metadata {
 public:
  Metadata() = default;
  explicit Metadata(std::vector<MetaEntry> entries) : entries_(std::move(entries)) {}

  std::span<const MetaEntry> entries() const { return entries_; }
  const MetaEntry* find(std::string_view key) const;
  // Absent: `otherwise`. Another type: an error that names key and type.
  Result<std::string> get_string(std::string_view key, std::string_view otherwise) const;
  Result<int64_t> get_int(std::string_view key, int64_t otherwise) const;
  Result<double> get_number(std::string_view key, double otherwise) const;
  Result<bool> get_bool(std::string_view key, bool otherwise) const;
  const MetaArray* find_array(std::string_view key) const;

 private:
  std::vector<MetaEntry> entries_;
};

}  // namespace millrace
