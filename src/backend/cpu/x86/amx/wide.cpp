// Products with quantised weights by tiles of bfloat16.
#include "backend/cpu/x86/amx/widen.h"
#include "backend/cpu/x86/x86.h"

namespace millrace::cpu {
namespace {

template <class Product, class Packing>
LinearKernel kernel_of() {
  LinearKernel kernel = tiles_kernel<Product>();
  kernel.packed_bytes = Packing::packed_bytes;
  kernel.pack = Packing::pack;
  kernel.unpack_row = Packing::unpack_row;
  return kernel;
}
template <class F>
LinearKernel kernel32() {
  return kernel_of<Tiles32<F>, Group32Linear<F>>();
}
template <class F>
LinearKernel kernel256() {
  return kernel_of<Tiles256<F>, Group256Linear<F>>();
}

}  // namespace

void add_amx_wide(Kernels& kernels) {
  auto& fast = kernels.linear[static_cast<size_t>(Activations::fast)];
  auto entry = [&](DType type) -> LinearKernel& { return fast[static_cast<size_t>(type)]; };
  entry(DType::q8_0) = kernel32<Q8_0>();
  entry(DType::q4_0) = kernel32<Q4_0>();
  entry(DType::q4_1) = kernel32<Q4_1>();
  entry(DType::q5_0) = kernel32<Q5_0>();
  entry(DType::q5_1) = kernel32<Q5_1>();
  entry(DType::iq4_nl) = kernel32<IQ4NL>();
  entry(DType::mxfp4) = kernel32<MXFP4>();
  entry(DType::q2_k) = kernel256<Q2K>();
  entry(DType::q3_k) = kernel256<Q3K>();
  entry(DType::q4_k) = kernel256<Q4K>();
  entry(DType::q5_k) = kernel256<Q5K>();
  entry(DType::q6_k) = kernel256<Q6K>();
  entry(DType::iq4_xs) = kernel256<IQ4XS>();
  entry(DType::iq2_xxs) = kernel256<IQ2XXS>();
}

}  // namespace millrace::cpu
