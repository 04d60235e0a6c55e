#include "backend/cuda/family.h"

#include <cstdlib>

#include "backend/cuda/portable/portable.h"

namespace millrace::cuda {
namespace {

constexpr Family kHopper = {"hopper", few_rows_fit, few_rows, many_rows, attend};
constexpr Family kPortable = {"portable", portable::few_rows_fit, portable::few_rows, portable::many_rows,
                              portable::attend};

}  // namespace

Result<const Family*> choose_family(std::string_view gpu, int major, int minor) {
  const char* set = std::getenv("MILLRACE_CUDA_KERNELS");
  const std::string_view wanted = set != nullptr ? set : "";
  if (major < 8) {
    return error(Code::unsupported,
                 "{} has compute capability {}.{}; Millrace needs 8.0 or newer (Ampere, 2020): use --device cpu, or "
                 "another GPU with --device cuda:NUMBER",
                 gpu, major, minor);
  }
  if (!wanted.empty() && wanted != kHopper.name && wanted != kPortable.name)
    return error(Code::invalid, "MILLRACE_CUDA_KERNELS={}: there are {} and {}; leave it unset to have one chosen",
                 wanted, kHopper.name, kPortable.name);
  const bool hopper = major == 9 && minor == 0;
  if (wanted == kHopper.name && !hopper) {
    return error(
        Code::unsupported,
        "MILLRACE_CUDA_KERNELS={}: {} has compute capability {}.{}, and these kernels need 9.0; leave it unset", wanted,
        gpu, major, minor);
  }
  return hopper && wanted != kPortable.name ? &kHopper : &kPortable;
}

}  // namespace millrace::cuda
