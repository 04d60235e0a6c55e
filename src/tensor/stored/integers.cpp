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

Result<void> Integers::settle() {
  TRY_VOID(check_finite(*scales_));
  settle_by_rounding();
  const bool whole = cols_ % 32 == 0 && (groups_ == 1 || group_ % 32 == 0) && group_of_.empty();
  if (!whole) return {};
  int low = 255, high = 0;
  bool fits = true, exact = true;
  for (int64_t row = 0; row < rows_; ++row) {
    for (int64_t g = 0; g < groups_; ++g) {
      const int z = zero(row, g);
      low = std::min(low, z), high = std::max(high, z);
      const float s = scale(row, g), half = f16_to_f32(f32_to_f16(s));
      exact = exact && half == s;
      fits = fits && half - half == 0.0f;
    }
  }
  if (!fits) {
    small_ = DType::bf16;  // a scale is beyond what float16 holds
    return {};
  }
  const int least = -high, most = (1 << bits_) - 1 - low;
  direct_ = true;
  if (least >= -8 && most <= 7) {
    small_ = DType::q4_0;
  } else if (bits_ <= 4) {
    small_ = DType::q4_1;
    exact = false;  // scale times zero point has more bits than float16
  } else if (least >= -128 && most <= 127) {
    small_ = DType::q8_0;
  } else {
    direct_ = exact = false;
  }
  if (exact) exact_ = small_;
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
  std::vector<uint8_t> all(static_cast<size_t>(count * cols_));
  this->codes(first, count, all.data());
  const auto bytes = static_cast<int64_t>(format(small_).group_bytes);
  for (int64_t at = 0; at < count * cols_; at += 32, out += bytes) {
    const int64_t row = first + at / cols_, group = group_at(at % cols_);
    const uint8_t* codes = all.data() + at;
    const float s = scale(row, group);
    const int z = zero(row, group);
    if (small_ == DType::q4_0) {
      auto& to = *reinterpret_cast<layout::Q4_0*>(out);
      put_d(to.d, s);
      put_nibbles(codes, 8 - z, to.codes);
    } else if (small_ == DType::q4_1) {
      auto& to = *reinterpret_cast<layout::Q4_1*>(out);
      put_d(to.d, s);
      put_d(to.m, std::clamp(-layout::load_f16(to.d) * static_cast<float>(z), -65504.0f, 65504.0f));
      put_nibbles(codes, 0, to.codes);
    } else {
      auto& to = *reinterpret_cast<layout::Q8_0*>(out);
      put_d(to.d, s);
      for (int i = 0; i < 32; ++i) to.codes[i] = static_cast<int8_t>(codes[i] - z);
    }
  }
}

}  // namespace millrace::stored
