#include "tensor/metadata.h"

#include <cstring>
#include <limits>

#include "base/check.h"
#include "tensor/identify.h"

namespace millrace {
namespace {

template <class T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

int64_t load_integer(MetaType type, const std::byte* bytes) {
  switch (type) {
    case MetaType::u8:
      return load<uint8_t>(bytes);
    case MetaType::i8:
      return load<int8_t>(bytes);
    case MetaType::u16:
      return load<uint16_t>(bytes);
    case MetaType::i16:
      return load<int16_t>(bytes);
    case MetaType::u32:
      return load<uint32_t>(bytes);
    case MetaType::i32:
      return load<int32_t>(bytes);
    case MetaType::boolean:
      return load<uint8_t>(bytes);
    default:
      return load<int64_t>(bytes);
  }
}

Error wrong_type(std::string_view key, std::string_view wanted, MetaType found) {
  return error(Code::invalid, "metadata {} should be {}, but is of type {}", in_quotes(key), wanted,
               meta_type_name(found));
}

Error wrong_elements(std::string_view wanted, MetaType found) {
  return error(Code::invalid, "should be an array of {}, but is one of {}", wanted, meta_type_name(found));
}

}  // namespace

std::string_view meta_type_name(MetaType type) {
  static constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                "bool", "string", "array", "u64", "i64", "f64"};
  const auto index = static_cast<size_t>(type);
  CHECK(index < std::size(kNames), "no such metadata type: {}", index);
  return kNames[index];
}

size_t meta_type_bytes(MetaType type) {
  switch (type) {
    case MetaType::u8:
    case MetaType::i8:
    case MetaType::boolean:
      return 1;
    case MetaType::u16:
    case MetaType::i16:
      return 2;
    case MetaType::u32:
    case MetaType::i32:
    case MetaType::f32:
      return 4;
    case MetaType::u64:
    case MetaType::i64:
    case MetaType::f64:
      return 8;
    case MetaType::string:
    case MetaType::array:
      return 0;
  }
  return 0;
}

MetaArray::MetaArray(MetaType type, uint64_t count, std::span<const std::byte> bytes)
    : type_(type), count_(count), bytes_(bytes) {
  const size_t size = meta_type_bytes(type);
  CHECK(size == 0 || bytes.size() / size == count, "{} elements in {} bytes", count, bytes.size());
}

Result<std::vector<std::string_view>> MetaArray::strings() const {
  if (type_ != MetaType::string) return wrong_elements("strings", type_);
  std::vector<std::string_view> out;
  out.reserve(count_);
  std::span<const std::byte> rest = bytes_;
  for (uint64_t i = 0; i < count_; ++i) {
    // Checked when the file was opened, but it is mapped, and somebody may have written to it since.
    const uint64_t length = rest.size() >= 8 ? load<uint64_t>(rest.data()) : UINT64_MAX;
    if (length > rest.size() - std::min<size_t>(rest.size(), 8))
      return error(Code::corrupt, "element {} of an array of texts lies outside of it: the file was changed", i);
    out.emplace_back(reinterpret_cast<const char*>(rest.data() + 8), length);
    rest = rest.subspan(8 + length);
  }
  return out;
}

Result<std::vector<int64_t>> MetaArray::integers() const {
  if (type_ == MetaType::string || type_ == MetaType::f32 || type_ == MetaType::f64) {
    return wrong_elements("whole numbers", type_);
  }
  const size_t size = meta_type_bytes(type_);
  std::vector<int64_t> out;
  out.reserve(count_);
  for (uint64_t i = 0; i < count_; ++i) {
    const int64_t value = load_integer(type_, bytes_.data() + i * size);
    if (type_ == MetaType::u64 && value < 0) {
      return error(Code::invalid, "element {} of an array is {}, too large", i, static_cast<uint64_t>(value));
    }
    out.push_back(value);
  }
  return out;
}

Result<std::vector<float>> MetaArray::floats() const {
  if (type_ != MetaType::f32 && type_ != MetaType::f64) return wrong_elements("floating-point numbers", type_);
  std::vector<float> out;
  out.reserve(count_);
  for (uint64_t i = 0; i < count_; ++i) {
    out.push_back(type_ == MetaType::f32 ? load<float>(bytes_.data() + i * 4)
                                         : static_cast<float>(load<double>(bytes_.data() + i * 8)));
  }
  return out;
}

const MetaEntry* Metadata::find(std::string_view key) const {
  for (const MetaEntry& entry : entries_) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

Result<std::string> Metadata::get_string(std::string_view key, std::string_view otherwise) const {
  const MetaEntry* entry = find(key);
  if (entry == nullptr) return std::string(otherwise);
  if (const auto* text = std::get_if<std::string_view>(&entry->value)) return std::string(*text);
  return wrong_type(key, "a string", entry->type);
}

Result<int64_t> Metadata::get_int(std::string_view key, int64_t otherwise) const {
  const MetaEntry* entry = find(key);
  if (entry == nullptr) return otherwise;
  if (const auto* number = std::get_if<int64_t>(&entry->value)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&entry->value)) {
    if (*number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return static_cast<int64_t>(*number);
    return error(Code::invalid, "metadata {} is {}, too large", in_quotes(key), *number);
  }
  return wrong_type(key, "a whole number", entry->type);
}

Result<double> Metadata::get_number(std::string_view key, double otherwise) const {
  const MetaEntry* entry = find(key);
  if (entry == nullptr) return otherwise;
  if (const auto* number = std::get_if<double>(&entry->value)) return *number;
  if (const auto* number = std::get_if<int64_t>(&entry->value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(&entry->value)) return static_cast<double>(*number);
  return wrong_type(key, "a number", entry->type);
}

Result<bool> Metadata::get_bool(std::string_view key, bool otherwise) const {
  const MetaEntry* entry = find(key);
  if (entry == nullptr) return otherwise;
  if (const auto* flag = std::get_if<bool>(&entry->value)) return *flag;
  return wrong_type(key, "true or false", entry->type);
}

const MetaArray* Metadata::find_array(std::string_view key) const {
  const MetaEntry* entry = find(key);
  return entry == nullptr ? nullptr : std::get_if<MetaArray>(&entry->value);
}

}  // namespace millrace
