#include "tensor/packing.h"

#include <cstring>

#include "base/check.h"

namespace millrace {
namespace {

constexpr int kPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // AWQ: which nibble holds output i of eight

// Words of a tensor that are filled field by field.
class Words {
 public:
  Words(std::string ending, std::vector<int64_t> shape)
      : words_(static_cast<size_t>(shape[0] * shape[1])), ending_(std::move(ending)), shape_(std::move(shape)) {}

  void put(int64_t word, int64_t bit, unsigned value) { words_[static_cast<size_t>(word)] |= value << bit; }
  PackedTensor take() {
    const auto bytes = std::as_bytes(std::span(words_));
    return {std::move(ending_), DType::i32, std::move(shape_), {bytes.begin(), bytes.end()}};
  }

 private:
  std::vector<uint32_t> words_;
  std::string ending_;
  std::vector<int64_t> shape_;
};

unsigned code(const GroupedCodes& from, int64_t r, int64_t c) {
  return from.codes[static_cast<size_t>(r * from.cols + c)];
}
unsigned zero(const GroupedCodes& from, int64_t r, int64_t g) {
  return from.zeros[static_cast<size_t>(r * from.groups() + g)];
}

// Scales by outputs, or (turned) by groups.
PackedTensor scales(const GroupedCodes& from, std::string ending, bool turned) {
  const int64_t rows = from.rows, groups = from.groups();
  PackedTensor out = {std::move(ending), from.grid.scale_type, {rows, groups}, {}};
  if (turned) out.shape = {groups, rows};
  std::vector<float> numbers = from.scales;
  for (int64_t r = 0; turned && r < rows; ++r) {
    for (int64_t g = 0; g < groups; ++g)
      numbers[static_cast<size_t>(g * rows + r)] = from.scales[static_cast<size_t>(r * groups + g)];
  }
  const Format& f = format(from.grid.scale_type);
  out.bytes.resize(numbers.size() * static_cast<size_t>(f.group_bytes));
  f.from_float(numbers.data(), out.bytes.data(), static_cast<int64_t>(numbers.size()));
  return out;
}

template <class T>
PackedTensor integers(std::string ending, DType type, std::vector<int64_t> shape, const std::vector<T>& numbers) {
  const auto bytes = std::as_bytes(std::span(numbers));
  return {std::move(ending), type, std::move(shape), {bytes.begin(), bytes.end()}};
}

std::vector<PackedTensor> pack_gptq(const GroupedCodes& from) {
  const int64_t rows = from.rows, cols = from.cols, groups = from.groups(), bits = from.grid.bits, each = 32 / bits;
  Words words("qweight", {cols / each, rows}), zeros("qzeros", {groups, rows / each});
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) words.put(c / each * rows + r, c % each * bits, code(from, r, c));
  }
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t r = 0; r < rows; ++r) zeros.put(g * (rows / each) + r / each, r % each * bits, zero(from, r, g) - 1);
  }
  std::vector<int32_t> group_of;
  for (int64_t c = 0; c < cols; ++c) group_of.push_back(static_cast<int32_t>(c / from.grid.group_of(cols)));
  return {integers("g_idx", DType::i32, {cols}, group_of), words.take(), zeros.take(), scales(from, "scales", true)};
}

std::vector<PackedTensor> pack_awq(const GroupedCodes& from) {
  const int64_t rows = from.rows, groups = from.groups(), width = rows / 8;
  Words words("qweight", {from.cols, width}), zeros("qzeros", {groups, width});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < from.cols; ++c) words.put(c * width + r / 8, 4 * kPlaces[r % 8], code(from, r, c));
    for (int64_t g = 0; g < groups; ++g) zeros.put(g * width + r / 8, 4 * kPlaces[r % 8], zero(from, r, g));
  }
  return {words.take(), zeros.take(), scales(from, "scales", true)};
}

std::vector<PackedTensor> pack_packed(const GroupedCodes& from) {
  const int64_t rows = from.rows, cols = from.cols, groups = from.groups(), bits = from.grid.bits, each = 32 / bits;
  const int64_t width = (cols + each - 1) / each;
  Words words("weight_packed", {rows, width});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) words.put(r * width + c / each, c % each * bits, code(from, r, c));
  }
  std::vector<PackedTensor> out = {words.take(), scales(from, "weight_scale", false),
                                   integers("weight_shape", DType::i64, {2}, std::vector<int64_t>{rows, cols})};
  if (from.grid.symmetric) return out;
  Words zeros("weight_zero_point", {(rows + each - 1) / each, groups});
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < groups; ++g) zeros.put(r / each * groups + g, r % each * bits, zero(from, r, g));
  }
  out.push_back(zeros.take());
  return out;
}

std::vector<PackedTensor> pack_int8(const GroupedCodes& from) {
  std::vector<int8_t> numbers;
  for (const uint8_t each : from.codes) numbers.push_back(static_cast<int8_t>(int{each} - 128));
  return {integers("weight", DType::i8, {from.rows, from.cols}, numbers), scales(from, "weight_scale", false)};
}

}  // namespace

void GroupedCodes::floats(int64_t row, float* out) const {
  const int64_t group = grid.group_of(cols), first = row * groups();
  for (int64_t c = 0; c < cols; ++c) {
    const auto at = static_cast<size_t>(first + c / group);
    out[c] = static_cast<float>(codes[static_cast<size_t>(row * cols + c)] - zeros[at]) * scales[at];
  }
}

std::string unpackable(PackLayout layout, const CodeGrid& grid, int64_t rows, int64_t cols) {
  const int64_t each = 32 / grid.bits;
  if (cols % grid.group_of(cols) != 0) return fmt::format("rows of {} are not whole groups of {}", cols, grid.group);
  if (layout == PackLayout::gptq && cols % each != 0)
    return fmt::format("{} inputs do not fill words of 32 bits", cols);
  if ((layout == PackLayout::gptq || layout == PackLayout::awq) && rows % each != 0)
    return fmt::format("{} outputs do not fill words of 32 bits", rows);
  return {};
}

std::vector<PackedTensor> pack(PackLayout layout, const GroupedCodes& codes) {
  CHECK(unpackable(layout, codes.grid, codes.rows, codes.cols).empty(), "{} by {}", codes.rows, codes.cols);
  switch (layout) {
    case PackLayout::gptq:
      return pack_gptq(codes);
    case PackLayout::awq:
      return pack_awq(codes);
    case PackLayout::packed:
      return pack_packed(codes);
    case PackLayout::int8:
      break;
  }
  return pack_int8(codes);
}

}  // namespace millrace
