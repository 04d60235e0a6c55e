// The number formats a tensor can have, and one table that says everything about each: its names, how many values stand
// in a group, how many bytes that group takes, and how it is turned into float32 and back. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace {

// clang-format off
enum class DType : uint8_t {
  // plain numbers
  f32, f16, bf16, f8_e4m3, f8_e5m2, f8_e8m0, f64, i8, i16, i32, i64, u8, u16, u32, u64, boolean,
  // quantised in groups, readable
  q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, iq2_xxs, mxfp4,
  // recognised and sized, but of products' inputs, not of weights: not readable
  q8_1, q8_k,
  // readable, multiplied as the file has them
  q1_0, q2_0, iq2_xs, iq2_s, iq3_xxs, iq3_s, iq1_s, iq1_m, tq1_0, tq2_0, nvfp4,
  // no file has these: what tables, FP8 and zero points of Hugging Face checkpoints become (tensor/stored_matrix.h)
  nf4, bnb_fp4, fp4_half, fp8_f32, fp8_128, q8_zero, int8_128,
};
// clang-format on
inline constexpr int kDTypes = static_cast<int>(DType::int8_128) + 1;

struct Format {
  DType type;
  std::string_view name;  // as people write it: "Q4_K", "BF16"
  int group;              // values in a group (1 for plain numbers)
  int group_bytes;        // bytes such a group takes
  int ggml;               // the type's number in GGUF files, -1 if it has none
  // `values` is a multiple of `group`; `in` and `out` need no alignment beyond their type's. Null where not supported.
  // to_float is exact: the float32 the format defines, bit for bit, on every machine.
  void (*to_float)(const std::byte* in, float* out, int64_t values);
  // Round to nearest. Quantised formats choose scales that make the squared error small; there NaN counts as 0 and what
  // is beyond the format's range is brought to its edge, so the result is always finite.
  void (*from_float)(const float* in, std::byte* out, int64_t values);

  bool readable() const { return to_float != nullptr; }
};

const Format& format(DType type);
std::optional<DType> dtype_from_ggml(uint32_t number);
std::optional<DType> dtype_from_name(std::string_view name);         // any case: "q4_k", "Q4_K", "bf16"
std::optional<DType> dtype_from_safetensors(std::string_view name);  // exactly as written there: "BF16", "F8_E4M3"

}  // namespace millrace
