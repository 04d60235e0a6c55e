// The Arm rows of the kernel table. `neon`: Armv8.2 with dot products and half precision (Neoverse N1, Apple M1 and
// later). `i8mm`: adds the int8 and bfloat16 matrix products and the widening half-precision product (Neoverse V1, N2
// and later). Integer sums are exact, so both rows give the same bits for the same quantised weights.
#pragma once

#include "backend/cpu/kernels.h"

namespace millrace::cpu {

bool neon_runs_here();
bool i8mm_runs_here();
void add_neon(Kernels& kernels);
void add_i8mm(Kernels& kernels);

// The parts of the rows.
void add_neon_rows(Kernels& kernels);
void add_neon_attend(Kernels& kernels);
void add_neon_float(Kernels& kernels);  // float32 arithmetic for every format; half-precision weights
void add_neon_q4_q8(Kernels& kernels);  // quantised weights by families of formats (int8_table.h)
void add_neon_q5(Kernels& kernels);
void add_neon_k45(Kernels& kernels);
void add_neon_k236(Kernels& kernels);
void add_neon_tables(Kernels& kernels);
void add_neon_states(Kernels& kernels);
void add_neon_peak(Kernels& kernels);
void add_i8mm_float(Kernels& kernels);
void add_i8mm_q(Kernels& kernels);
void add_i8mm_k(Kernels& kernels);
void add_i8mm_tables(Kernels& kernels);
void add_i8mm_bf16(Kernels& kernels);
void add_i8mm_attend_bf16(Kernels& kernels);
void add_i8mm_attend_f16(Kernels& kernels);

void add_i8mm_peak(Kernels& kernels);

// A float16 cache of any shape, token after token: float32 arithmetic.
void neon_store_f16(const KvPlace& place, const float* k, const float* v);
void neon_attend_f16(const AttendChunk& chunk);

}  // namespace millrace::cpu
