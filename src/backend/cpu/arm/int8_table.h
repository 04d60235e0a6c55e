// The entries both Arm rows have for quantised weights, each by its own products (Linear32, Linear256).
#pragma once

#include "backend/cpu/arm/formats256.h"
#include "backend/cpu/arm/formats32.h"

namespace millrace::cpu {
namespace {

template <template <class> class Linear32, template <class> class Linear256>
void add_int8_entries(Kernels& kernels) {
  auto& fast = kernels.linear[static_cast<size_t>(Activations::fast)];
  auto entry = [&](DType type) -> LinearKernel& { return fast[static_cast<size_t>(type)]; };
  entry(DType::q8_0) = Linear32<Q8_0>::kernel();
  entry(DType::q4_0) = Linear32<Q4_0>::kernel();
  entry(DType::q4_1) = Linear32<Q4_1>::kernel();
  entry(DType::q5_0) = Linear32<Q5_0>::kernel();
  entry(DType::q5_1) = Linear32<Q5_1>::kernel();
  entry(DType::iq4_nl) = Linear32<IQ4NL>::kernel();
  entry(DType::mxfp4) = Linear32<MXFP4>::kernel();
  entry(DType::q2_k) = Linear256<Q2K>::kernel();
  entry(DType::q3_k) = Linear256<Q3K>::kernel();
  entry(DType::q4_k) = Linear256<Q4K>::kernel();
  entry(DType::q5_k) = Linear256<Q5K>::kernel();
  entry(DType::q6_k) = Linear256<Q6K>::kernel();
  entry(DType::iq4_xs) = Linear256<IQ4XS>::kernel();
  entry(DType::iq2_xxs) = Linear256<IQ2XXS>::kernel();
}

}  // namespace
}  // namespace millrace::cpu
