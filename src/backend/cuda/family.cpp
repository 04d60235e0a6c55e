#include "backend/cuda/family.h"

#include <cstdlib>

#include "backend/cuda/capability.h"
#include "backend/cuda/portable/portable.h"

namespace millrace::cuda {
namespace {

constexpr Family kHopper = {kHopperKernels, few_rows_fit, few_rows, many_rows, attend};
constexpr Family kPortable = {kPortableKernels, portable::few_rows_fit, portable::few_rows, portable::many_rows,
                              portable::attend};

}  // namespace

Result<const Family*> choose_family(std::string_view gpu, int major, int minor) {
  const char* set = std::getenv("MILLRACE_CUDA_KERNELS");
  TRY(const std::string_view name, family_for(gpu, major, minor, set != nullptr ? set : ""));
  return name == kHopper.name ? &kHopper : &kPortable;
}

}  // namespace millrace::cuda
