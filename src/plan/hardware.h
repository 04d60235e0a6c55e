// Hardware: machines to plan for. Well-known ones as their data sheets have them (dense rates, no sparsity), this
// machine as measured, and any other from a JSON file. Plain values; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/roofline.h"

namespace millrace {

struct Hardware {
  std::string name;         // "h100"
  std::string description;  // "NVIDIA H100 SXM, 80 GB"
  std::string source;       // "data sheet", "measured", the file's name
  bool accelerator = false;
  int64_t memory = 0;   // bytes of one device
  int64_t reserve = 0;  // of them, taken by driver, libraries and the system before a model comes
  Ceilings ceilings;
  double link_bytes = 0;    // a second to the other devices of a group, one direction; 0: there is none
  double link_seconds = 0;  // until the first byte of a reduce arrives
};

std::vector<Hardware> known_hardware();

// By name, or from a JSON file if the name ends in .json; the error says what there is. "this" is not known here.
Result<Hardware> find_hardware(std::string_view name);
Result<Hardware> parse_hardware(std::string_view json, std::string source);

// This machine: `memory` is what a process may use of it.
Hardware hardware_of(const Machine& machine, int64_t memory);

}  // namespace millrace
