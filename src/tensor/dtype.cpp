#include "tensor/dtype.h"

#include <array>
#include <bit>
#include <cctype>

#include "base/check.h"
#include "tensor/formats/formats.h"

namespace millrace {
namespace {

static_assert(std::endian::native == std::endian::little,
              "weights are read in place, and every format is little-endian");

using namespace formats;

// clang-format off
constexpr std::array<Format, kDTypes> kFormats = {{
    // type             name       group bytes ggml  to_float          from_float
    {DType::f32,      "F32",         1,   4,   0, f32_to_float,     f32_from_float},
    {DType::f16,      "F16",         1,   2,   1, f16_to_float,     f16_from_float},
    {DType::bf16,     "BF16",        1,   2,  30, bf16_to_float,    bf16_from_float},
    {DType::f8_e4m3,  "F8_E4M3",     1,   1,  -1, f8_e4m3_to_float, f8_e4m3_from_float},
    {DType::f8_e5m2,  "F8_E5M2",     1,   1,  -1, f8_e5m2_to_float, f8_e5m2_from_float},
    {DType::f8_e8m0,  "F8_E8M0",     1,   1,  -1, f8_e8m0_to_float, nullptr},
    {DType::f64,      "F64",         1,   8,  28, f64_to_float,     f64_from_float},
    {DType::i8,       "I8",          1,   1,  24, i8_to_float,      nullptr},
    {DType::i16,      "I16",         1,   2,  25, i16_to_float,     nullptr},
    {DType::i32,      "I32",         1,   4,  26, i32_to_float,     nullptr},
    {DType::i64,      "I64",         1,   8,  27, i64_to_float,     nullptr},
    {DType::u8,       "U8",          1,   1,  -1, u8_to_float,      nullptr},
    {DType::u16,      "U16",         1,   2,  -1, u16_to_float,     nullptr},
    {DType::u32,      "U32",         1,   4,  -1, u32_to_float,     nullptr},
    {DType::u64,      "U64",         1,   8,  -1, u64_to_float,     nullptr},
    {DType::boolean,  "BOOL",        1,   1,  -1, boolean_to_float, nullptr},
    {DType::q4_0,     "Q4_0",       32,  18,   2, q4_0_to_float,    alike<q4_0_from_float>},
    {DType::q4_1,     "Q4_1",       32,  20,   3, q4_1_to_float,    alike<q4_1_from_float>},
    {DType::q5_0,     "Q5_0",       32,  22,   6, q5_0_to_float,    alike<q5_0_from_float>},
    {DType::q5_1,     "Q5_1",       32,  24,   7, q5_1_to_float,    alike<q5_1_from_float>},
    {DType::q8_0,     "Q8_0",       32,  34,   8, q8_0_to_float,    alike<q8_0_from_float>},
    {DType::q2_k,     "Q2_K",      256,  84,  10, q2_k_to_float,    alike<q2_k_from_float>},
    {DType::q3_k,     "Q3_K",      256, 110,  11, q3_k_to_float,    alike<q3_k_from_float>},
    {DType::q4_k,     "Q4_K",      256, 144,  12, q4_k_to_float,    alike<q4_k_from_float>},
    {DType::q5_k,     "Q5_K",      256, 176,  13, q5_k_to_float,    alike<q5_k_from_float>},
    {DType::q6_k,     "Q6_K",      256, 210,  14, q6_k_to_float,    alike<q6_k_from_float>},
    {DType::iq4_nl,   "IQ4_NL",     32,  18,  20, iq4_nl_to_float,  alike<iq4_nl_from_float>},
    {DType::iq4_xs,   "IQ4_XS",    256, 136,  23, iq4_xs_to_float,  alike<iq4_xs_from_float>},
    {DType::iq2_xxs,  "IQ2_XXS",   256,  66,  16, iq2_xxs_to_float, nullptr},
    {DType::mxfp4,    "MXFP4",      32,  17,  39, mxfp4_to_float,   alike<mxfp4_from_float>},
    {DType::q8_1,     "Q8_1",       32,  36,   9, nullptr,          nullptr},
    {DType::q8_k,     "Q8_K",      256, 292,  15, nullptr,          nullptr},
    {DType::q1_0,     "Q1_0",      128,  18,  41, q1_0_to_float,    nullptr},
    {DType::q2_0,     "Q2_0",       64,  18,  42, q2_0_to_float,    nullptr},
    {DType::iq2_xs,   "IQ2_XS",    256,  74,  17, iq2_xs_to_float,  nullptr},
    {DType::iq2_s,    "IQ2_S",     256,  82,  22, iq2_s_to_float,   nullptr},
    {DType::iq3_xxs,  "IQ3_XXS",   256,  98,  18, iq3_xxs_to_float, nullptr},
    {DType::iq3_s,    "IQ3_S",     256, 110,  21, iq3_s_to_float,   nullptr},
    {DType::iq1_s,    "IQ1_S",     256,  50,  19, iq1_s_to_float,   nullptr},
    {DType::iq1_m,    "IQ1_M",     256,  56,  29, iq1_m_to_float,   nullptr},
    {DType::tq1_0,    "TQ1_0",     256,  54,  34, tq1_0_to_float,   nullptr},
    {DType::tq2_0,    "TQ2_0",     256,  66,  35, tq2_0_to_float,   nullptr},
    {DType::nvfp4,    "NVFP4",      64,  36,  40, nvfp4_to_float,   nullptr},
    {DType::nf4,      "NF4",        32,  18,  -1, nf4_to_float,     nullptr},
    {DType::bnb_fp4,  "BNB_FP4",    32,  18,  -1, bnb_fp4_to_float, nullptr},
    {DType::fp4_half, "FP4_F16",    32,  20,  -1, fp4_half_to_float, nullptr},
    {DType::fp8_f32,  "FP8_F32",    32,  36,  -1, fp8_f32_to_float, nullptr},
    {DType::fp8_128,  "FP8_128",   128, 132,  -1, fp8_128_to_float, fp8_128_from_float},
    {DType::q8_zero,  "Q8_ZERO",    32,  36,  -1, q8_zero_to_float, q8_zero_from_float},
    {DType::int8_128, "INT8_128",  128, 132,  -1, int8_128_to_float, int8_128_from_float},
}};
// clang-format on

constexpr bool in_order() {
  for (int i = 0; i < kDTypes; ++i) {
    if (static_cast<int>(kFormats[static_cast<size_t>(i)].type) != i) return false;
  }
  return true;
}
static_assert(in_order(), "rows stand in the order of DType");

bool same_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::toupper(static_cast<unsigned char>(a[i])) != std::toupper(static_cast<unsigned char>(b[i]))) return false;
  }
  return true;
}

}  // namespace

const Format& format(DType type) {
  const auto index = static_cast<size_t>(type);
  CHECK(index < kFormats.size(), "no such type: {}", index);
  return kFormats[index];
}

std::optional<DType> dtype_from_ggml(uint32_t number) {
  for (const Format& row : kFormats) {
    if (row.ggml >= 0 && static_cast<uint32_t>(row.ggml) == number) return row.type;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Format& row : kFormats) {
    if (same_ignoring_case(row.name, name)) return row.type;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  for (const Format& row : kFormats) {
    if (row.group == 1 && row.name == name) return row.type;
  }
  return std::nullopt;
}

}  // namespace millrace
