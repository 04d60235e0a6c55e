#include "backend/kv_form.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "tensor/formats/layout.h"
#include "tensor/half.h"
#include "tensor/tensor.h"

namespace millrace {
namespace {

struct KvName {
  std::string_view name;
  DType type;
  bool turned;
  std::string_view shown;
};

constexpr std::array kNames = {
    KvName{"f32", DType::f32, true, "F32"},
    KvName{"f16", DType::f16, true, "F16"},
    KvName{"bf16", DType::bf16, true, "BF16"},
    KvName{"q8", DType::i8, true, "Q8"},
    KvName{"q8_0", DType::i8, true, "Q8"},
    KvName{"int8", DType::i8, true, "Q8"},
    KvName{"fp8", DType::f8_e4m3, true, "FP8"},
    KvName{"fp8_e4m3", DType::f8_e4m3, true, "FP8"},
    KvName{"q4", DType::q4_0, true, "Q4"},
    KvName{"q4_0", DType::q4_0, true, "Q4"},
    KvName{"q4-plain", DType::q4_0, false, "Q4 unturned"},
};

std::string_view name_of(DType type, bool turned) {
  for (const KvName& each : kNames)
    if (each.type == type && (type != DType::q4_0 || each.turned == turned)) return each.shown;
  return format(type).name;
}

bool has_factor(DType type) { return type == DType::i8 || type == DType::f8_e4m3; }

// The largest size of the numbers; NaN if one is not finite.
float largest(const float* in, int64_t count) {
  float most = 0, odd = 0;
  for (int64_t i = 0; i < count; ++i) {
    most = std::max(most, std::fabs(in[i]));
    odd += in[i] - in[i];  // 0 unless it is not finite
  }
  return odd == 0 ? most : std::numeric_limits<float>::quiet_NaN();
}

constexpr float kSmallest = 1e-30f;  // a head below this is all zero

void write_bytes(DType type, const float* in, int64_t dim, std::byte* codes, std::byte* factor) {
  const float most = largest(in, dim), end = type == DType::i8 ? 127.0f : 448.0f;
  const float each = most < kSmallest ? 0.0f : most / end, over = most >= kSmallest ? end / most : 0.0f;
  std::memcpy(factor, &each, sizeof each);
  if (!(most >= kSmallest)) {
    std::memset(codes, 0, static_cast<size_t>(dim));
    return;
  }
  for (int64_t i = 0; i < dim; ++i) {
    const float scaled = in[i] * over;
    codes[i] = type == DType::i8 ? static_cast<std::byte>(static_cast<int8_t>(std::lrintf(scaled)))
                                 : static_cast<std::byte>(f32_to_f8_e4m3(std::clamp(scaled, -448.0f, 448.0f)));
  }
}

void write_fours(const float* in, int64_t dim, std::byte* codes) {
  for (int64_t first = 0; first < dim; first += 32, in += 32, codes += sizeof(layout::Q4_0)) {
    auto& to = *reinterpret_cast<layout::Q4_0*>(codes);
    float most = 0;
    for (int i = 0; i < 32; ++i)
      if (std::fabs(in[i]) > std::fabs(most)) most = in[i];
    const bool finite = largest(in, 32) <= 65504.0f * 8;
    const uint16_t factor = finite ? f32_to_f16(most / -8) : uint16_t{0x7E00};  // NaN
    layout::store_u16(to.d, factor);
    const float d = f16_to_f32(factor), over = finite && d != 0 ? 1 / d : 0.0f;
    auto code = [&](float x) { return finite ? static_cast<int>(std::clamp(std::lrintf(x * over) + 8L, 0L, 15L)) : 8; };
    for (int i = 0; i < 16; ++i) to.codes[i] = static_cast<uint8_t>(code(in[i]) | code(in[i + 16]) << 4);
  }
}

}  // namespace

std::string KvForm::name() const {
  const std::string_view keys = name_of(k, turned), values = name_of(v, true);
  if (k == v) return std::string(keys);
  return fmt::format("{} keys and {} values", keys, values);
}

std::optional<KvForm> kv_form_from_name(std::string_view name) {
  for (const KvName& each : kNames)
    if (each.name == name) return KvForm(each.type, each.type, each.turned);
  return std::nullopt;
}

bool can_keep(DType type) {
  return std::any_of(kNames.begin(), kNames.end(), [&](const KvName& each) { return each.type == type; });
}

int64_t kv_code_bytes(DType type, int64_t dim) { return bytes_of(type, dim); }

int64_t kv_bytes(DType type, int64_t dim) {
  return bytes_of(type, dim) + (has_factor(type) && dim > 0 ? static_cast<int64_t>(sizeof(float)) : 0);
}

void kv_write(DType type, const float* in, int64_t dim, std::byte* codes, std::byte* factor) {
  if (has_factor(type)) return write_bytes(type, in, dim, codes, factor);
  if (type == DType::q4_0) return write_fours(in, dim, codes);
  format(type).from_float(in, codes, dim);
}

void kv_read(DType type, const std::byte* codes, const std::byte* factor, int64_t dim, float* out) {
  if (!has_factor(type)) return format(type).to_float(codes, out, dim);
  float each;
  std::memcpy(&each, factor, sizeof each);
  if (type == DType::i8) {
    const auto* numbers = reinterpret_cast<const int8_t*>(codes);
    for (int64_t i = 0; i < dim; ++i) out[i] = static_cast<float>(numbers[i]) * each;
    return;
  }
  for (int64_t i = 0; i < dim; ++i) out[i] = f8_e4m3_to_f32(static_cast<uint8_t>(codes[i])) * each;
}

void kv_turn(float* inout, int64_t dim) {
  const int64_t part = dim & -dim;
  const float scale = 1 / std::sqrt(static_cast<float>(part));
  for (float* x = inout; x < inout + dim; x += part) {
    for (int64_t half = 1; half < part; half *= 2) {
      for (int64_t first = 0; first < part; first += 2 * half) {
        for (int64_t i = first; i < first + half; ++i) {
          const float a = x[i], b = x[i + half];
          x[i] = a + b, x[i + half] = a - b;
        }
      }
    }
    for (int64_t i = 0; i < part; ++i) x[i] *= scale;
  }
}

}  // namespace millrace
