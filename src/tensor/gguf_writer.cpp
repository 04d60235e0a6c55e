#include "tensor/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"
#include "base/checked.h"
#include "tensor/identify.h"

namespace millrace {
namespace {

constexpr size_t kMaxKey = 65'535, kMaxName = 1'024, kMaxDimensions = 4;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint32_t kVersion = 3;

template <class T>
void append_to(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

uint64_t round_up(uint64_t bytes, uint64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

// ---- metadata
// -----------------------------------------------------------------------------------------------------------

void GgufWriter::append_string(std::string_view text) {
  append_to<uint64_t>(metadata_bytes_, text.size());
  metadata_bytes_ += text;
}

Result<void> GgufWriter::open_entry(std::string_view key, MetaType type) {
  CHECK(!file_, "metadata after begin()");
  if (key.empty() || key.size() > kMaxKey) {
    return error(Code::invalid, "a metadata key must have 1 to {} bytes, not {}", kMaxKey, key.size());
  }
  if (!keys_.emplace(key).second) return error(Code::invalid, "the metadata key {} is given twice", in_quotes(key));
  append_string(key);
  append_to<uint32_t>(metadata_bytes_, static_cast<uint32_t>(type));
  ++entries_;
  return {};
}

template <class T>
Result<void> GgufWriter::put_number(std::string_view key, MetaType type, T number) {
  if (key == "general.alignment") TRY_VOID(set_alignment(type, static_cast<double>(number)));
  TRY_VOID(open_entry(key, type));
  append_to(metadata_bytes_, number);
  return {};
}

template <class T>
Result<void> GgufWriter::put_array(std::string_view key, MetaType type, std::span<const T> items) {
  TRY_VOID(open_entry(key, MetaType::array));
  append_to<uint32_t>(metadata_bytes_, static_cast<uint32_t>(type));
  append_to<uint64_t>(metadata_bytes_, items.size());
  for (const T& item : items) {
    if constexpr (std::is_arithmetic_v<T>) {
      append_to(metadata_bytes_, item);
    } else {
      append_string(item);
    }
  }
  return {};
}

Result<void> GgufWriter::set_alignment(MetaType type, double number) {
  CHECK(tensors_.empty(), "the alignment must be set before the first tensor is added");
  if (type != MetaType::u32 || number < 1 || number > static_cast<double>(kMaxAlignment) ||
      !std::has_single_bit(static_cast<uint64_t>(number))) {
    return error(Code::invalid, "'general.alignment' must be a power of two up to {} of type u32", kMaxAlignment);
  }
  alignment_ = static_cast<uint64_t>(number);
  return {};
}

Result<void> GgufWriter::put(std::string_view key, std::string_view text) {
  TRY_VOID(open_entry(key, MetaType::string));
  append_string(text);
  return {};
}
Result<void> GgufWriter::put(std::string_view key, bool flag) {
  return put_number<uint8_t>(key, MetaType::boolean, flag ? 1 : 0);
}
Result<void> GgufWriter::put(std::string_view key, uint32_t number) { return put_number(key, MetaType::u32, number); }
Result<void> GgufWriter::put(std::string_view key, int32_t number) { return put_number(key, MetaType::i32, number); }
Result<void> GgufWriter::put(std::string_view key, uint64_t number) { return put_number(key, MetaType::u64, number); }
Result<void> GgufWriter::put(std::string_view key, int64_t number) { return put_number(key, MetaType::i64, number); }
Result<void> GgufWriter::put(std::string_view key, float number) { return put_number(key, MetaType::f32, number); }
Result<void> GgufWriter::put(std::string_view key, double number) { return put_number(key, MetaType::f64, number); }
Result<void> GgufWriter::put(std::string_view key, std::span<const std::string> texts) {
  return put_array(key, MetaType::string, texts);
}
Result<void> GgufWriter::put(std::string_view key, std::span<const std::string_view> texts) {
  return put_array(key, MetaType::string, texts);
}
Result<void> GgufWriter::put(std::string_view key, std::span<const int32_t> numbers) {
  return put_array(key, MetaType::i32, numbers);
}
Result<void> GgufWriter::put(std::string_view key, std::span<const uint32_t> numbers) {
  return put_array(key, MetaType::u32, numbers);
}
Result<void> GgufWriter::put(std::string_view key, std::span<const float> numbers) {
  return put_array(key, MetaType::f32, numbers);
}

Result<void> GgufWriter::put(const MetaEntry& entry) {
  if (const auto* text = std::get_if<std::string_view>(&entry.value)) return put(entry.key, *text);
  if (const auto* flag = std::get_if<bool>(&entry.value)) return put(entry.key, *flag);
  if (const auto* array = std::get_if<MetaArray>(&entry.value)) {
    TRY_VOID(open_entry(entry.key, MetaType::array));
    append_to<uint32_t>(metadata_bytes_, static_cast<uint32_t>(array->type()));
    append_to<uint64_t>(metadata_bytes_, array->size());
    metadata_bytes_.append(reinterpret_cast<const char*>(array->bytes().data()), array->bytes().size());
    return {};
  }
  if (const auto* number = std::get_if<double>(&entry.value)) {
    if (entry.type == MetaType::f64) return put_number(entry.key, entry.type, *number);
    return put_number(entry.key, entry.type, static_cast<float>(*number));
  }
  const auto* whole = std::get_if<int64_t>(&entry.value);
  const uint64_t bits = whole != nullptr ? static_cast<uint64_t>(*whole) : std::get<uint64_t>(entry.value);
  switch (meta_type_bytes(entry.type)) {
    case 1:
      return put_number(entry.key, entry.type, static_cast<uint8_t>(bits));
    case 2:
      return put_number(entry.key, entry.type, static_cast<uint16_t>(bits));
    case 4:
      return put_number(entry.key, entry.type, static_cast<uint32_t>(bits));
    default:
      return put_number(entry.key, entry.type, bits);
  }
}

// ---- tensors
// ------------------------------------------------------------------------------------------------------------

Result<void> GgufWriter::add(std::string_view name, DType type, std::span<const int64_t> shape) {
  CHECK(!file_, "a tensor after begin()");
  const Format& f = format(type);
  if (f.ggml < 0)
    return error(Code::unsupported, "tensor {} is {}, which GGUF files cannot hold", in_quotes(name), f.name);
  if (name.empty() || name.size() > kMaxName) {
    return error(Code::invalid, "a tensor's name must have 1 to {} bytes, not {}", kMaxName, name.size());
  }
  if (shape.size() > kMaxDimensions) {
    return error(Code::unsupported, "tensor {} has {} dimensions, but GGUF files hold at most {}", in_quotes(name),
                 shape.size(), kMaxDimensions);
  }
  const int64_t cols = shape.empty() ? 1 : shape.back();
  if (cols % f.group != 0) {
    return error(Code::invalid, "tensor {} has rows of {} values, which is not a multiple of the {} that {} needs",
                 in_quotes(name), cols, f.group, f.name);
  }
  Checked values = 1u;
  for (const int64_t extent : shape) values = values * extent;
  const Checked bytes = values / f.group * f.group_bytes;
  const Checked end = (Checked(data_bytes_) + bytes).aligned(alignment_);
  if (!end.within(uint64_t{1} << 60)) return error(Code::invalid, "tensor {} is larger than any file", in_quotes(name));
  if (!names_.emplace(name).second) return error(Code::invalid, "the tensor {} is given twice", in_quotes(name));

  append_to<uint64_t>(tensor_bytes_, name.size());
  tensor_bytes_ += name;
  append_to(tensor_bytes_, static_cast<uint32_t>(shape.size()));
  for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) append_to(tensor_bytes_, *extent);
  append_to(tensor_bytes_, static_cast<uint32_t>(f.ggml));
  append_to(tensor_bytes_, data_bytes_);
  tensors_.push_back(*bytes.get());
  data_bytes_ = *end.get();
  return {};
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  append_to(out, kVersion);
  append_to<uint64_t>(out, tensors_.size());
  append_to(out, entries_);
  out += metadata_bytes_;
  out += tensor_bytes_;
  out.resize(round_up(out.size(), alignment_), '\0');
  return out;
}

uint64_t GgufWriter::file_bytes() const {
  return round_up(4 + 4 + 8 + 8 + metadata_bytes_.size() + tensor_bytes_.size(), alignment_) + data_bytes_;
}

Result<void> GgufWriter::begin(const std::filesystem::path& path) {
  CHECK(!file_, "begin() twice");
  TRY(AtomicFile file, AtomicFile::create(path));
  file_.emplace(std::move(file));
  TRY_VOID(file_->write(header()));
  return close_finished_tensors();
}

Result<void> GgufWriter::close_finished_tensors() {
  while (current_ < tensors_.size() && written_ == tensors_[current_]) {
    const uint64_t padding = round_up(file_->written(), alignment_) - file_->written();
    TRY_VOID(file_->write(std::string(padding, '\0')));
    ++current_;
    written_ = 0;
  }
  return {};
}

Result<void> GgufWriter::write(std::span<const std::byte> bytes) {
  CHECK(file_, "write() before begin()");
  while (!bytes.empty()) {
    CHECK(current_ < tensors_.size(), "{} bytes more than the tensors have", bytes.size());
    const uint64_t count = std::min<uint64_t>(bytes.size(), bytes_wanted());
    TRY_VOID(file_->write(bytes.first(count)));
    written_ += count;
    bytes = bytes.subspan(count);
    TRY_VOID(close_finished_tensors());
  }
  return {};
}

Result<void> GgufWriter::finish() {
  CHECK(file_, "finish() before begin()");
  if (current_ < tensors_.size()) {
    return error(Code::invalid, "{} of {} tensors were written before the file was finished", current_,
                 tensors_.size());
  }
  return file_->commit();
}

}  // namespace millrace
