// The entries both Arm rows have for quantised weights, each compiled for its own instructions.
#pragma once

#include "backend/cpu/arm/formats256.h"
#include "backend/cpu/arm/formats32.h"
#ifdef __ARM_FEATURE_MATMUL_INT8
#include "backend/cpu/arm/group32.h"
#else
#include "backend/cpu/arm/neon/dot32.h"
#endif

namespace millrace::cpu {
namespace {

#ifdef __ARM_FEATURE_MATMUL_INT8
template <class F>
using Linear32 = Group32Linear<F>;
#else
template <class F>
using Linear32 = Dot32Linear<F>;
#endif

inline void add_int8_entries(Kernels& kernels) {
  auto& fast = kernels.linear[static_cast<size_t>(Activations::fast)];
  auto entry = [&](DType type) -> LinearKernel& { return fast[static_cast<size_t>(type)]; };
  entry(DType::q8_0) = Linear32<Q8_0>::kernel();
  entry(DType::q4_0) = Linear32<Q4_0>::kernel();
  entry(DType::q4_1) = Linear32<Q4_1>::kernel();
  entry(DType::q5_0) = Linear32<Q5_0>::kernel();
  entry(DType::q5_1) = Linear32<Q5_1>::kernel();
  entry(DType::iq4_nl) = Linear32<IQ4NL>::kernel();
  entry(DType::mxfp4) = Linear32<MXFP4>::kernel();
  entry(DType::q2_k) = Group256Linear<Q2K>::kernel();
  entry(DType::q3_k) = Group256Linear<Q3K>::kernel();
  entry(DType::q4_k) = Group256Linear<Q4K>::kernel();
  entry(DType::q5_k) = Group256Linear<Q5K>::kernel();
  entry(DType::q6_k) = Group256Linear<Q6K>::kernel();
  entry(DType::iq4_xs) = Group256Linear<IQ4XS>::kernel();
  entry(DType::iq2_xxs) = Group256Linear<IQ2XXS>::kernel();
}

}  // namespace
}  // namespace millrace::cpu
