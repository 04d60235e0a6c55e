// What the table in dtype.cpp points at: for each format, a function to float32 and, where there is one, a function
// back. The contract of both stands in tensor/dtype.h, the bytes in formats/layout.h. Only dtype.cpp and importance.cpp
// include this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/importance.h"

namespace millrace::formats {

using GridOf = void(const std::byte* group, Grid& grid);
using PutCodes = void(const int8_t* codes, std::byte* group);
using ToFloat = void(const std::byte* in, float* out, int64_t values);
using FromFloat = void(const float* in, std::byte* out, int64_t values);
// As tensor/importance.h says; null: all numbers count alike.
using FromWeighed = void(const float* in, const float* importance, std::byte* out, int64_t values);
template <FromWeighed* kFrom>
void alike(const float* in, std::byte* out, int64_t values) {
  kFrom(in, nullptr, out, values);
}

// plain.cpp
ToFloat f32_to_float, f16_to_float, bf16_to_float, f8_e4m3_to_float, f8_e5m2_to_float, f8_e8m0_to_float, f64_to_float;
ToFloat i8_to_float, i16_to_float, i32_to_float, i64_to_float, u8_to_float, u16_to_float, u32_to_float, u64_to_float;
ToFloat boolean_to_float;
FromFloat f32_from_float, f16_from_float, bf16_from_float, f8_e4m3_from_float, f8_e5m2_from_float, f64_from_float;

// q4.cpp, q5.cpp, q8_0.cpp: one scale, or scale and offset, for 32 values
ToFloat q4_0_to_float, q4_1_to_float, q5_0_to_float, q5_1_to_float, q8_0_to_float;
FromWeighed q4_0_from_float, q4_1_from_float, q5_0_from_float, q5_1_from_float, q8_0_from_float;

// q2_k.cpp, q3_k.cpp, q4_q5_k.cpp, q6_k.cpp: scales of scales for 256 values
ToFloat q2_k_to_float, q3_k_to_float, q4_k_to_float, q5_k_to_float, q6_k_to_float;
FromWeighed q2_k_from_float, q3_k_from_float, q4_k_from_float, q5_k_from_float, q6_k_from_float;

// iq4.cpp, iq2_xxs.cpp, mxfp4.cpp, nvfp4.cpp: codes that name entries of a table
ToFloat iq4_nl_to_float, iq4_xs_to_float, iq2_xxs_to_float, mxfp4_to_float, nvfp4_to_float;
FromWeighed iq4_nl_from_float, iq4_xs_from_float, mxfp4_from_float;

// The grid of each of these: what its codes can stand for once scales are chosen (tensor/importance.h).
GridOf q4_0_grid, q4_1_grid, q5_0_grid, q5_1_grid, q8_0_grid, q2_k_grid, q3_k_grid, q4_k_grid, q5_k_grid, q6_k_grid;
GridOf iq4_nl_grid, iq4_xs_grid, mxfp4_grid;
PutCodes q4_0_put, q4_1_put, q5_0_put, q5_1_put, q8_0_put, q2_k_put, q3_k_put, q4_k_put, q5_k_put, q6_k_put;
PutCodes iq4_nl_put, iq4_xs_put, mxfp4_put;

// iq1.cpp, iq2.cpp, iq3.cpp: rows of a grid; ternary.cpp: digits
ToFloat iq2_xs_to_float, iq2_s_to_float, iq3_xxs_to_float, iq3_s_to_float, iq1_s_to_float, iq1_m_to_float;
ToFloat tq1_0_to_float, tq2_0_to_float, q1_0_to_float, q2_0_to_float;

// fp4.cpp: tables of four bits with float16 factors, which only the memory of this program has
ToFloat nf4_to_float, bnb_fp4_to_float, fp4_half_to_float, fp8_f32_to_float, fp8_128_to_float, q8_zero_to_float,
    int8_128_to_float;
FromFloat fp8_128_from_float, q8_zero_from_float, int8_128_from_float;

}  // namespace millrace::formats
