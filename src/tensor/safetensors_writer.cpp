#include "tensor/safetensors_writer.h"

#include <cstring>

#include "base/check.h"
#include "base/checked.h"
#include "base/json.h"
#include "tensor/tensor.h"

namespace millrace {
namespace {

// What these files call a format; empty: nothing.
std::string_view safetensors_name(DType type) {
  for (const std::string_view name : {"F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64",
                                      "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"}) {
    if (dtype_from_safetensors(name) == type) return name;
  }
  return {};
}

}  // namespace

Result<void> SafetensorsWriter::add(std::string_view name, DType type, std::span<const int64_t> shape) {
  const std::string_view called = safetensors_name(type);
  if (called.empty())
    return error(Code::unsupported, "{}: safetensors files have no name for {}", name, format(type).name);
  if (!names_.emplace(name).second) return error(Code::invalid, "{}: given twice", name);
  Checked values(1);
  for (const int64_t each : shape) values = values * Checked(static_cast<uint64_t>(each));
  const Checked bytes = values * Checked(static_cast<uint64_t>(format(type).group_bytes));
  if (!bytes.within(uint64_t{1} << 62)) return error(Code::invalid, "{}: too large", name);
  const uint64_t end = data_bytes_ + *bytes.get();
  entries_ +=
      fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", entries_.empty() ? "" : ",",
                  to_text(Json(std::string_view(name))), called, fmt::join(shape, ","), data_bytes_, end);
  data_bytes_ = end;
  return {};
}

std::string SafetensorsWriter::header() const {
  std::string out = "{\"__metadata__\":{\"format\":\"pt\"}" + (entries_.empty() ? "" : "," + entries_) + "}";
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

Result<void> SafetensorsWriter::begin(const std::filesystem::path& path) {
  TRY(AtomicFile file, AtomicFile::create(path));
  file_.emplace(std::move(file));
  const std::string text = header();
  uint64_t size = text.size();
  char first[8];
  std::memcpy(first, &size, 8);  // little-endian, as every machine here is
  TRY_VOID(file_->write(std::string_view(first, 8)));
  return file_->write(text);
}

Result<void> SafetensorsWriter::write(std::span<const std::byte> bytes) {
  CHECK(file_ && written_ + bytes.size() <= data_bytes_, "{} bytes beyond the last tensor", bytes.size());
  written_ += bytes.size();
  return file_->write(bytes);
}

Result<void> SafetensorsWriter::finish() {
  if (!file_ || written_ != data_bytes_)
    return error(Code::internal, "{} of {} bytes were written", written_, data_bytes_);
  return file_->commit();
}

}  // namespace millrace
