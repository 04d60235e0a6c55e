#include "tensor/stored_matrix.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "tensor/stored/layouts.h"

namespace millrace {
namespace {

constexpr size_t kRowsAtOnce = 16;  // layouts that lie across read a line of memory for so many

// body(where in `rows`, first, count) for runs of rows that follow each other.
template <class F>
void each_run(std::span<const int64_t> rows, F&& body) {
  for (size_t done = 0; done < rows.size();) {
    size_t run = 1;
    while (run < kRowsAtOnce && done + run < rows.size() && rows[done + run] == rows[done] + static_cast<int64_t>(run))
      ++run;
    body(done, rows[done], static_cast<int64_t>(run));
    done += run;
  }
}

}  // namespace

void StoredMatrix::read(std::span<const int64_t> rows, Keep keep, std::span<std::byte> out) const {
  const DType type = this->type(keep);
  const auto row_bytes = static_cast<size_t>(bytes_of(type, cols_));
  std::vector<float> numbers;
  each_run(rows, [&](size_t done, int64_t first, int64_t count) {
    std::byte* to = out.data() + done * row_bytes;
    if (type == small_) return pack(first, count, to);
    numbers.resize(static_cast<size_t>(count * cols_));
    floats(first, count, numbers.data());
    format(type).from_float(numbers.data(), to, count * cols_);
  });
}

void StoredMatrix::read_ordered(std::span<const int64_t> rows, std::span<std::byte> out) const {
  CHECK(!order_.empty(), "{}: inputs follow each other", method_);
  const auto row_bytes = static_cast<size_t>(bytes_of(ordered_, cols_));
  each_run(rows, [&](size_t done, int64_t first, int64_t count) {
    pack_ordered(first, count, out.data() + done * row_bytes);
  });
}

void StoredMatrix::pack_ordered(int64_t, int64_t, std::byte*) const { CHECK(false, "{} knows no order", method_); }

void StoredMatrix::pack(int64_t first, int64_t count, std::byte* out) const {
  std::vector<float> numbers(static_cast<size_t>(count * cols_));
  floats(first, count, numbers.data());
  format(small_).from_float(numbers.data(), out, count * cols_);
}

void StoredMatrix::settle_by_rounding() { small_ = cols_ % 32 == 0 ? DType::q8_0 : DType::bf16; }

Result<StoredMatrixPtr> stored_matrix(const Checkpoint& checkpoint, std::string_view stem) {
  if (checkpoint.kind() == Checkpoint::Kind::gguf) return StoredMatrixPtr();
  const std::string name(stem);
  for (const auto& find : {stored::find_gptq, stored::find_awq, stored::find_packed, stored::find_fp4,
                           stored::find_bitsandbytes, stored::find_scaled}) {
    TRY(StoredMatrixPtr found, find(checkpoint, name));
    if (found != nullptr) return found;
  }
  return StoredMatrixPtr();
}

bool is_scale_of_activations(std::string_view name) {
  constexpr std::array kEndings = {".input_scale", ".output_scale", ".k_scale", ".v_scale", ".input_global_scale"};
  return std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view end) { return name.ends_with(end); });
}

bool is_beside_codes(std::string_view name) {
  constexpr std::array kEndings = {".weight_scale",
                                   ".weight_scale_inv",
                                   ".weight_scale_2",
                                   ".weight_global_scale",
                                   ".weight_shape",
                                   ".weight_g_idx",
                                   ".weight_zero_point",
                                   ".scales",
                                   ".qzeros",
                                   ".g_idx",
                                   ".weight.absmax",
                                   ".weight.quant_map",
                                   ".weight.nested_absmax",
                                   ".weight.nested_quant_map",
                                   ".SCB",
                                   ".weight_format",
                                   "_scales"};
  return is_scale_of_activations(name) || name.find(".weight.quant_state.") != std::string_view::npos ||
         std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view end) { return name.ends_with(end); });
}

namespace stored {

std::string shown(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Result<const StoredTensor*> need(const Checkpoint& checkpoint, const std::string& name, std::span<const DType> types,
                                 const std::vector<int64_t>& shape) {
  const StoredTensor* found = checkpoint.find(name);
  if (found == nullptr) return error(Code::invalid, "the tensor '{}' is missing: expected {}", name, shown(shape));
  if (std::find(types.begin(), types.end(), found->type) == types.end())
    return error(Code::invalid, "the tensor '{}' has format {}: expected {}", name, format(found->type).name,
                 format(types[0]).name);
  if (found->shape != shape)
    return error(Code::invalid, "the tensor '{}' has shape {}: expected {}", name, shown(found->shape), shown(shape));
  return found;
}

Result<void> check_finite(const StoredTensor& tensor) {
  for (int64_t i = 0; i < tensor.values(); ++i) {
    const float value = number_at(tensor, i);
    if (!(value - value == 0.0f))
      return error(Code::corrupt, "the tensor '{}' has the scale {} at {}: expected finite numbers", tensor.name, value,
                   i);
  }
  return {};
}

uint32_t field(const StoredTensor& tensor, int64_t first, int64_t stride, int64_t i, int bits) {
  const int64_t bit = i * bits, word = first + bit / 32 * stride;
  const auto at = static_cast<int>(bit % 32);
  uint32_t value = word_at(tensor, word) >> at;
  if (at + bits > 32) value |= word_at(tensor, word + stride) << (32 - at);
  return value & ((1u << bits) - 1);
}

const Json* quantisation_said(const Json& config) {
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    if (const Json* found = find(config, key)) return found;
    if (const Json* text = find(config, "text_config")) {
      if (const Json* found = find(*text, key)) return found;
    }
  }
  return nullptr;
}

int64_t number_said(const Json* said, std::string_view key, int64_t otherwise) {
  const Json* value = said != nullptr ? find(*said, key) : nullptr;
  return value != nullptr && value->is_int64() ? value->get_int64() : otherwise;
}

}  // namespace stored
}  // namespace millrace
