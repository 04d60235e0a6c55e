// The x86 rows of the kernel table. `avx2`: with FMA and F16C (Haswell, Zen and later). `avx512`: F, BW, DQ, VL and
// VNNI (Cascade Lake, Zen 4 and later). `amx`: tiles of int8 and bfloat16 (Sapphire Rapids and later). `amx_bf16`: the
// same machines, with quantised weights widened to bfloat16 instead of int8 sums that are scaled: many rows are faster,
// one row is slower, so it is there for whoever asks for it. One source serves the first two: it is written for sixteen
// lanes (simd.h) and compiled once for each folder.
#pragma once

#include "backend/cpu/kernels.h"

namespace millrace::cpu {

bool avx2_runs_here();
bool avx512_runs_here();
bool amx_runs_here();  // asks the kernel for leave to use tiles
void add_avx2(Kernels& kernels);
void add_avx512(Kernels& kernels);
void add_amx_bf16(Kernels& kernels);
void add_amx(Kernels& kernels);  // on top of it

// The parts of the rows.
void add_avx2_rows(Kernels& kernels);
void add_avx2_states(Kernels& kernels);
void add_avx2_attend(Kernels& kernels);
void add_avx2_float(Kernels& kernels);
void add_avx2_int8(Kernels& kernels);
void add_avx2_peak(Kernels& kernels);
void add_avx512_rows(Kernels& kernels);
void add_avx512_states(Kernels& kernels);
void add_avx512_attend(Kernels& kernels);
void add_avx512_float(Kernels& kernels);
void add_avx512_int8(Kernels& kernels);
void add_avx512_peak(Kernels& kernels);
void add_amx_int8(Kernels& kernels);  // quantised weights
void add_amx_wide(Kernels& kernels);  // the same, as bfloat16
void add_amx_half(Kernels& kernels);  // bfloat16 and float16 weights
void add_amx_attend(Kernels& kernels);
void add_amx_peak(Kernels& kernels);

}  // namespace millrace::cpu
