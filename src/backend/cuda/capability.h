// Which family of kernels (family.h) a GPU gets, by its compute capability and what MILLRACE_CUDA_KERNELS asks for, and
// what its arithmetic is called. Apart from the kernels, so that it can be tested without them. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace::cuda {

inline constexpr std::string_view kHopperKernels = "hopper", kPortableKernels = "portable";

// wanted: a family's name, or empty. An error says what is missing and what to do.
inline Result<std::string_view> family_for(std::string_view gpu, int major, int minor, std::string_view wanted) {
  if (major < 8) {
    return error(Code::unsupported,
                 "{} has compute capability {}.{}; Millrace needs 8.0 or newer (Ampere, 2020): use --device cpu, or "
                 "another GPU with --device cuda:NUMBER",
                 gpu, major, minor);
  }
  if (!wanted.empty() && wanted != kHopperKernels && wanted != kPortableKernels) {
    return error(Code::invalid, "MILLRACE_CUDA_KERNELS={}: there are {} and {}; leave it unset to have one chosen",
                 wanted, kHopperKernels, kPortableKernels);
  }
  const bool hopper = major == 9 && minor == 0;
  if (wanted == kHopperKernels && !hopper) {
    return error(
        Code::unsupported,
        "MILLRACE_CUDA_KERNELS={}: these kernels need compute capability 9.0, and {} has {}.{}; leave it unset", wanted,
        gpu, major, minor);
  }
  return hopper && wanted != kPortableKernels ? kHopperKernels : kPortableKernels;
}

// Backend::numerics() of a GPU. How a matrix instruction adds its products is the affair of a generation of GPUs, which
// the compute capability names; the name a GPU is sold by says nothing more.
inline std::string numerics_for(std::string_view family, int major, int minor, bool rounds_inputs) {
  return fmt::format("cuda {}.{}, {} kernels{}", major, minor, family, rounds_inputs ? "" : " with inputs of 16 bits");
}

}  // namespace millrace::cuda
