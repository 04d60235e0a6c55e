// Machine: what this computer can do at most, measured. Every speed we print stands beside one of these numbers
// (contract 5). Measured once and kept in the user's cache directory under a name made of processor, threads and
// instruction set; measuring takes about two seconds and wants an otherwise quiet machine. How noisy it was is kept
// too, and a figure that passes 100 % has the machine measured again: a limit that something passed was none.
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
  double f16_operations = 0;  // with float16 weights, in whichever arithmetic that is done; 0: as float32
  // How far the middle of the runs was below the best one, as a part of it: of the noisiest figure. A tenth and more
  // means that others were at work, and that the ceilings may be too low.
  double noise = 0;
  double stolen = 0;  // of the time it took, the share that other virtual machines got; 0 where nobody tells
};

struct MachineOptions {
  int threads = 0;       // 0: one for every core
  std::string_view isa;  // empty: as the cpu backend chooses
  bool remeasure = false;
  bool raise = false;       // measured again, and the larger of old and new figures kept: one of them was passed
  bool known_only = false;  // an error instead of measuring, for whoever must not disturb what else is running
};

// From the cache, or measured now and written there. A cache that cannot be written is no error.
Result<Machine> measure_machine(const MachineOptions& options);

// Where the figures are kept: $XDG_CACHE_HOME/millrace or ~/.cache/millrace.
std::filesystem::path machine_cache_path(const Machine& machine);

// For people: "87 %", or "over 100 %" where a figure passed what is called its limit. Whoever prints the latter prints
// over_limit_text() too, which says why it can be; its ceilings were measured again, unless the weights explain it.
std::string share_of_limit(double share);
bool over_limit(double share);
bool fits_a_cache(int64_t weights);  // bytes: the processor's last one may hold them, while limits are of memory
std::string over_limit_text(int64_t weights, const Machine& machine);
std::string noise_text(const Machine& machine);

std::string processor_name();

}  // namespace millrace
