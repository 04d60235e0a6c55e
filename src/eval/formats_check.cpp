#include "eval/formats_check.h"

#include <bit>
#include <cmath>

namespace millrace {
namespace {

constexpr std::string_view kRaw = ".raw", kValues = ".values";

// What keeps the two tensors from being compared; empty: nothing.
std::string misfit(const StoredTensor& raw, const StoredTensor* values, const std::string& name) {
  const auto type = dtype_from_name(name);
  if (!type) return fmt::format("'{}' is no format known here", name);
  const Format& f = format(*type);
  if (!f.readable()) return fmt::format("{} cannot be read", f.name);
  if (values == nullptr) return fmt::format("the tensor '{}{}' is missing", name, kValues);
  if (raw.type != DType::u8 || values->type != DType::f32)
    return fmt::format("expected U8 and F32, found {} and {}", format(raw.type).name, format(values->type).name);
  const int64_t groups = raw.values() / f.group_bytes;
  if (groups * f.group_bytes != raw.values() || groups * f.group != values->values())
    return fmt::format("expected {} bytes for {} values, found {}", values->values() / f.group * f.group_bytes,
                       values->values(), raw.values());
  return {};
}

FormatResult compare(const StoredTensor& raw, const StoredTensor* values, std::string name) {
  FormatResult result{.name = std::move(name)};
  result.failure = misfit(raw, values, result.name);
  if (!result.failure.empty()) return result;
  auto expected = read_floats(*values);
  if (!expected.ok()) {
    result.failure = expected.error().message;
    return result;
  }
  std::vector<float> found(expected->size());
  result.values = static_cast<int64_t>(found.size());
  format(*dtype_from_name(result.name)).to_float(raw.bytes.data(), found.data(), result.values);
  for (size_t i = 0; i < found.size(); ++i) {
    const float a = (*expected)[i], b = found[i];
    if (std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b))) continue;
    if (result.different++ > 0) continue;
    result.first_difference = static_cast<int64_t>(i);
    result.expected = a;
    result.found = b;
  }
  return result;
}

}  // namespace

Result<std::vector<FormatResult>> check_formats(const Checkpoint& file) {
  std::vector<FormatResult> results;
  for (const StoredTensor& tensor : file.tensors()) {
    if (!tensor.name.ends_with(kRaw)) continue;
    std::string name = tensor.name.substr(0, tensor.name.size() - kRaw.size());
    const StoredTensor* values = file.find(name + std::string(kValues));
    results.push_back(compare(tensor, values, std::move(name)));
  }
  if (results.empty())
    return error(Code::invalid, "{}: has no tensor named FORMAT.raw, such as Q4_K.raw", file.path().string());
  return results;
}

}  // namespace millrace
