// Machine: what this computer can do at most, measured. Every speed we print stands beside one of these numbers
// (contract 5). Measured once and kept in the user's cache directory under a name made of processor, threads and
// instruction set; measuring takes about two seconds and wants an otherwise quiet machine.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

struct Machine {
  std::string processor;  // "Neoverse-V1"
  std::string isa;        // the kernel row the arithmetic was measured with
  int threads = 1;
  double read_bytes = 0;  // a second, from memory, four streams a thread
  // Multiplications and additions a second, counted apart, in each arithmetic the row has; 0 where it has none.
  double int8_operations = 0;
  double bf16_operations = 0;
  double f32_operations = 0;
};

struct MachineOptions {
  int threads = 0;       // 0: as many as processors
  std::string_view isa;  // empty: as the cpu backend chooses
  bool remeasure = false;
  bool known_only = false;  // an error instead of measuring, for whoever must not disturb what else is running
};

// From the cache, or measured now and written there. A cache that cannot be written is no error.
Result<Machine> measure_machine(const MachineOptions& options);

// Where the figures are kept: $XDG_CACHE_HOME/millrace or ~/.cache/millrace.
std::filesystem::path machine_cache_path(const Machine& machine);

std::string processor_name();

}  // namespace millrace
