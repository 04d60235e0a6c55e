#include <cstdlib>

#include "backend/cpu/kernels.h"
#if defined(__aarch64__)
#include "backend/cpu/arm/arm.h"
#elif defined(__x86_64__)
#include "backend/cpu/x86/x86.h"
#endif

namespace millrace {
namespace cpu {
namespace {

struct Row {
  std::string_view name;
  bool (*runs_here)();
  void (*add)(Kernels& kernels);  // to the rows above it in the list
};

// From the plainest to the best; each row builds on all before it.
constexpr Row kRows[] = {
    {"scalar", [] { return true; }, add_scalar},
#if defined(__aarch64__)
    {"neon", neon_runs_here, add_neon},
    {"i8mm", i8mm_runs_here, add_i8mm},
#elif defined(__x86_64__)
    {"avx2", avx2_runs_here, add_avx2},          {"avx512", avx512_runs_here, add_avx512},
    {"amx_bf16", amx_runs_here, add_amx_bf16},   {"amx", amx_runs_here, add_amx},
#endif
};

}  // namespace

Result<Kernels> choose_kernels(std::string_view isa) {
  if (isa.empty()) {
    const char* forced = std::getenv("MILLRACE_ISA");
    if (forced != nullptr) isa = forced;
  }
  Kernels kernels{};
  bool found = isa.empty();
  for (const Row& row : kRows) {
    if (!row.runs_here()) break;
    row.add(kernels);
    kernels.name = row.name;
    if (row.name == isa) {
      found = true;
      break;
    }
  }
  if (!found) {
    std::string names;
    for (std::string_view name : cpu_isas()) names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    return error(Code::unsupported, "this machine has no instruction set '{}'; it has: {}", isa, names);
  }
  return kernels;
}

}  // namespace cpu

std::vector<std::string_view> cpu_isas() {
  std::vector<std::string_view> names;
  for (const cpu::Row& row : cpu::kRows) {
    if (!row.runs_here()) break;
    names.push_back(row.name);
  }
  return names;
}

}  // namespace millrace
