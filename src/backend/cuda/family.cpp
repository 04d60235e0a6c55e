#include "backend/cuda/family.h"

#include <cstdlib>
#include <initializer_list>

#include "backend/cuda/capability.h"
#include "backend/cuda/parts.h"
#include "backend/cuda/portable/portable.h"

namespace millrace::cuda {
namespace {

using Load = cudaError_t (*)();
cudaError_t load_all(std::initializer_list<Load> files) {
  for (Load load : files) {
    if (const cudaError_t status = load(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}
cudaError_t load_shared() {
  return load_all({load_start, load_rows, load_turn, load_shortlist, load_pack, load_any_rows, load_routing,
                   load_experts, load_streams, load_delta, load_states, load_attend_any, load_attend_coded,
                   load_attend_small, load_attend_latent, load_fp8_code, load_parts});
}
cudaError_t load_hopper() {
  return load_all({load_few_rows, load_attend_cluster, load_shared, load_many_rows, load_spread_rows, load_attend_short,
                   load_attend_long, load_fp8_rows});
}
cudaError_t load_portable() {
  return load_all({load_shared, portable::load_few_rows, portable::load_many_rows, portable::load_attend_long,
                   portable::load_attend_short, portable::load_int8_rows});
}

bool never_finish(int32_t, const Rope&, const KvView&) { return false; }

constexpr Family kHopper = {.name = kHopperKernels,
                            .load = load_hopper,
                            .few_rows_fit = few_rows_fit,
                            .few_rows = few_rows,
                            .many_rows = many_rows,
                            .many_rows_finish = many_rows_finish,
                            .attend = attend,
                            .fp8_rows = fp8_rows,
                            .int8_rows = int8_rows};
constexpr Family kPortable = {.name = kPortableKernels,
                              .load = load_portable,
                              .few_rows_fit = portable::few_rows_fit,
                              .few_rows = portable::few_rows,
                              .many_rows = portable::many_rows,
                              .many_rows_finish = never_finish,
                              .attend = portable::attend,
                              .fp8_rows = nullptr,
                              .int8_rows = portable::int8_rows};

}  // namespace

Result<const Family*> choose_family(std::string_view gpu, int major, int minor) {
  const char* set = std::getenv("MILLRACE_CUDA_KERNELS");
  TRY(const std::string_view name, family_for(gpu, major, minor, set != nullptr ? set : ""));
  return name == kHopper.name ? &kHopper : &kPortable;
}

}  // namespace millrace::cuda
