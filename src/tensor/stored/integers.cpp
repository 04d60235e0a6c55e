// Integers in groups: their float32 numbers, and which format of GGUF holds the same codes.
#include <algorithm>

#include "tensor/formats/layout.h"
#include "tensor/stored/layouts.h"

namespace millrace::stored {
namespace {

void put_d(uint8_t* place, float value) { layout::store_u16(place, f32_to_f16(value)); }

void put_nibbles(const uint8_t* codes, int add, uint8_t* out) {
  for (int i = 0; i < 16; ++i)
    out[i] = static_cast<uint8_t>(((codes[i] + add) & 15) | ((codes[i + 16] + add) & 15) << 4);
}

}  // namespace

Result<void> Integers::set_groups_of(const StoredTensor& g_idx) {
  bool in_order = true;
  std::vector<int32_t> group_of(static_cast<size_t>(cols_));
  for (int64_t i = 0; i < cols_; ++i) {
    const auto group = static_cast<int32_t>(word_at(g_idx, i));
    if (group < 0 || group >= groups_)
      return error(Code::corrupt, "the tensor '{}' puts input {} into group {}: expected 0 to {}", g_idx.name, i, group,
                   groups_ - 1);
    group_of[static_cast<size_t>(i)] = group;
    in_order = in_order && group == i / group_;
  }
  if (!in_order) group_of_ = std::move(group_of);
  return {};
}

Result<void> Integers::set_group_size(int64_t groups, int64_t said) {
  groups_ = groups;
  if (groups > 0 && said > 0 && pieces(cols_, said) == groups) {
    group_ = said;
  } else if (groups > 0 && cols_ % groups == 0) {
    group_ = cols_ / groups;
  }
  if (group_ <= 0)
    return error(Code::invalid,
                 "the tensor '{}' has {} groups for {} inputs: expected a divisor, or {} in groups of {}",
                 scales_->name, groups, cols_, said > 0 ? pieces(cols_, said) : 1, said > 0 ? said : cols_);
  return {};
}

Integers::Codes Integers::codes_format() const {
  int low = 255, high = 0;
  Codes found;
  for (int64_t row = 0; row < rows_; ++row) {
    for (int64_t g = 0; g < groups_; ++g) {
      const int z = zero(row, g);
      low = std::min(low, z), high = std::max(high, z);
      const float s = scale(row, g), half = f16_to_f32(f32_to_f16(s));
      found.exact = found.exact && half == s;
      found.fits = found.fits && half - half == 0.0f;
    }
  }
  const int least = -high, most = (1 << bits_) - 1 - low;
  if (least >= -8 && most <= 7) {
    found.type = DType::q4_0;
  } else if (bits_ <= 4) {
    found.type = DType::q4_1;
    found.exact = false;  // scale times zero point has more bits than float16
  } else if (least >= -128 && most <= 127) {
    found.type = DType::q8_0;
  } else {
    found.type = DType::q8_zero;
  }
  return found;
}

// The inputs of each group one after the other, if every group has whole groups of 32.
void Integers::settle_order() {
  std::vector<int64_t> ends(static_cast<size_t>(groups_) + 1);
  for (const int32_t group : group_of_) ++ends[static_cast<size_t>(group) + 1];
  for (int64_t g = 0; g < groups_; ++g) {
    if (ends[static_cast<size_t>(g) + 1] % 32 != 0) return;
    ends[static_cast<size_t>(g) + 1] += ends[static_cast<size_t>(g)];
  }
  order_.resize(group_of_.size());
  for (size_t i = 0; i < group_of_.size(); ++i)
    order_[static_cast<size_t>(ends[static_cast<size_t>(group_of_[i])]++)] = static_cast<int32_t>(i);
}

Result<void> Integers::settle() {
  TRY_VOID(check_finite(*scales_));
  settle_by_rounding();
  const bool whole = cols_ % 32 == 0 && (groups_ == 1 || group_ % 32 == 0 || !group_of_.empty());
  if (!whole) return {};
  const Codes found = codes_format();
  if (!group_of_.empty()) {
    if (found.fits) settle_order();
    ordered_ = *found.type;
    return {};
  }
  if (!found.fits) {
    small_ = DType::bf16;  // a scale is beyond what float16 holds
    return {};
  }
  direct_ = true;
  small_ = *found.type;
  if (found.exact) exact_ = small_;
  return {};
}

void Integers::floats(int64_t first, int64_t count, float* out) const {
  std::vector<uint8_t> codes(static_cast<size_t>(count * cols_));
  this->codes(first, count, codes.data());
  std::vector<float> scales(static_cast<size_t>(groups_));
  std::vector<int> zeros(static_cast<size_t>(groups_));
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t g = 0; g < groups_; ++g) {
      scales[static_cast<size_t>(g)] = scale(first + r, g);
      zeros[static_cast<size_t>(g)] = zero(first + r, g);
    }
    for (int64_t i = 0; i < cols_; ++i) {
      const auto g = static_cast<size_t>(group_at(i));
      out[r * cols_ + i] = static_cast<float>(codes[static_cast<size_t>(r * cols_ + i)] - zeros[g]) * scales[g];
    }
  }
}

void Integers::pack(int64_t first, int64_t count, std::byte* out) const {
  if (!direct_) return StoredMatrix::pack(first, count, out);
  pack_codes(small_, first, count, out);
}

void Integers::pack_ordered(int64_t first, int64_t count, std::byte* out) const {
  pack_codes(ordered_, first, count, out);
}

void Integers::pack_codes(DType type, int64_t first, int64_t count, std::byte* out) const {
  std::vector<uint8_t> all(static_cast<size_t>(count * cols_));
  this->codes(first, count, all.data());
  const auto bytes = static_cast<int64_t>(format(type).group_bytes);
  uint8_t codes[32];
  for (int64_t at = 0; at < count * cols_; at += 32, out += bytes) {
    const int64_t row = first + at / cols_, input = at % cols_;
    auto place = [&](int64_t i) { return order_.empty() ? i : int64_t{order_[static_cast<size_t>(i)]}; };
    for (int64_t i = 0; i < 32; ++i) codes[i] = all[static_cast<size_t>(at - input + place(input + i))];
    const int64_t group = group_at(place(input));
    const float s = scale(row, group);
    const int z = zero(row, group);
    if (type == DType::q4_0) {
      auto& to = *reinterpret_cast<layout::Q4_0*>(out);
      put_d(to.d, s);
      put_nibbles(codes, 8 - z, to.codes);
    } else if (type == DType::q4_1) {
      auto& to = *reinterpret_cast<layout::Q4_1*>(out);
      put_d(to.d, s);
      put_d(to.m, std::clamp(-layout::load_f16(to.d) * static_cast<float>(z), -65504.0f, 65504.0f));
      put_nibbles(codes, 0, to.codes);
    } else if (type == DType::q8_0) {
      auto& to = *reinterpret_cast<layout::Q8_0*>(out);
      put_d(to.d, s);
      for (int i = 0; i < 32; ++i) to.codes[i] = static_cast<int8_t>(codes[i] - z);
    } else {
      auto& to = *reinterpret_cast<layout::Q8Zero*>(out);
      put_d(to.d, s);
      layout::store_u16(to.zero, static_cast<uint16_t>(z));
      std::copy_n(codes, 32, to.codes);
    }
  }
}

}  // namespace millrace::stored
