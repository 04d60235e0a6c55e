// The entries both Arm rows have for quantised weights, each by its own products (Linear32, Linear256). In families of
// formats, so that none of the files that have them compiled takes long.
#pragma once

#include "backend/cpu/arm/formats256.h"
#include "backend/cpu/arm/formats32.h"

namespace millrace::cpu {
namespace {

template <class Linear>
void add_fast_entry(Kernels& kernels, DType type) {
  kernels.linear[static_cast<size_t>(Activations::fast)][static_cast<size_t>(type)] = Linear::kernel();
}

template <template <class> class Linear32>
void add_q4_q8_entries(Kernels& kernels) {
  add_fast_entry<Linear32<Q8_0>>(kernels, DType::q8_0);
  add_fast_entry<Linear32<Q4_0>>(kernels, DType::q4_0);
}

template <template <class> class Linear32>
void add_q5_entries(Kernels& kernels) {
  add_fast_entry<Linear32<Q4_1>>(kernels, DType::q4_1);
  add_fast_entry<Linear32<Q5_0>>(kernels, DType::q5_0);
  add_fast_entry<Linear32<Q5_1>>(kernels, DType::q5_1);
}

template <template <class> class Linear256>
void add_k45_entries(Kernels& kernels) {
  add_fast_entry<Linear256<Q4K>>(kernels, DType::q4_k);
  add_fast_entry<Linear256<Q5K>>(kernels, DType::q5_k);
}

template <template <class> class Linear256>
void add_k236_entries(Kernels& kernels) {
  add_fast_entry<Linear256<Q2K>>(kernels, DType::q2_k);
  add_fast_entry<Linear256<Q3K>>(kernels, DType::q3_k);
  add_fast_entry<Linear256<Q6K>>(kernels, DType::q6_k);
}

// Codes that stand for a table's values.
template <template <class> class Linear32, template <class> class Linear256>
void add_table_entries(Kernels& kernels) {
  add_fast_entry<Linear32<IQ4NL>>(kernels, DType::iq4_nl);
  add_fast_entry<Linear32<MXFP4>>(kernels, DType::mxfp4);
  add_fast_entry<Linear256<IQ4XS>>(kernels, DType::iq4_xs);
  add_fast_entry<Linear256<IQ2XXS>>(kernels, DType::iq2_xxs);
}

}  // namespace
}  // namespace millrace::cpu
