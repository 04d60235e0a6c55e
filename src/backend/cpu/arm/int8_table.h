// The entries both Arm rows have for quantised weights, each compiled for its own instructions.
#pragma once

#include "backend/cpu/arm/formats256.h"
#include "backend/cpu/arm/formats32.h"
#ifndef __ARM_FEATURE_MATMUL_INT8
#include "backend/cpu/arm/neon/dot256.h"
#endif

namespace millrace::cpu {
namespace {

#ifdef __ARM_FEATURE_MATMUL_INT8
template <class F>
using Linear256 = Group256Linear<F>;
#else
template <class F>
using Linear256 = Dot256Linear<F>;
#endif

inline void add_int8_entries(Kernels& kernels) {
  auto& fast = kernels.linear[static_cast<size_t>(Activations::fast)];
  auto entry = [&](DType type) -> LinearKernel& { return fast[static_cast<size_t>(type)]; };
  entry(DType::q8_0) = Group32Linear<Q8_0>::kernel();
  entry(DType::q4_0) = Group32Linear<Q4_0>::kernel();
  entry(DType::q4_1) = Group32Linear<Q4_1>::kernel();
  entry(DType::q5_0) = Group32Linear<Q5_0>::kernel();
  entry(DType::q5_1) = Group32Linear<Q5_1>::kernel();
  entry(DType::iq4_nl) = Group32Linear<IQ4NL>::kernel();
  entry(DType::mxfp4) = Group32Linear<MXFP4>::kernel();
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
