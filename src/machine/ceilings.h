// Machine: what this computer can do at most, measured. Every speed we print stands beside one of these numbers
// (contract 5). Measured once and kept in the user's cache directory under a name made of processor, threads and
// instruction set; measuring takes about two seconds and wants an otherwise quiet machine. How noisy each was is kept
// too, and a figure that passes 100 % has the machine measured again: a limit that something passed was none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

// For each ceiling, how far the middle of its runs was below the best one, as a part of it; below 0 where that is not
// known. A tenth and more means that others were at work, and that the ceiling may be too low.
struct CeilingNoise {
  double read = -1, int8 = -1, bf16 = -1, f32 = -1, f16 = -1;

  double arithmetic() const;  // the largest of those of arithmetic
  double largest() const;
};

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
  CeilingNoise noise;
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

// What the least time of some work is made of.
enum class Bound : uint8_t { memory, compute };

// For people: "87 %", or "over 100 %" where a figure passed what is called its limit. Whoever prints the latter prints
// over_limit_text() too, which says why it can be; its ceilings were measured again before.
std::string share_of_limit(double share);
bool over_limit(double share);
bool fits_a_cache(int64_t weights);  // bytes: the processor's last one may hold them, while limits are of memory

// Which limits the figures of a report passed.
struct PassedLimits {
  bool memory = false, compute = false;

  // Work that took so many seconds, and the least that its parts bound by memory and by arithmetic could take. A cache
  // can give bytes faster than memory does; nothing explains arithmetic that is faster than its limit by itself.
  void add(double memory_seconds, double compute_seconds, double seconds);
  bool any() const { return memory || compute; }
};
// Why that can be, for each bound that was passed, with the noise of its ceilings; empty if none was.
std::string over_limit_text(const PassedLimits& passed, int64_t weights, const Machine& machine);

std::string noise_text(const Machine& machine);     // of all ceilings together
std::string ceilings_text(const Machine& machine);  // each, with its noise

std::string processor_name();

}  // namespace millrace
