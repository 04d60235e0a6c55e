// Which machine computes, by the name people give it: cpu, cuda, cuda:1, auto (a GPU if there is one), reference.
#pragma once

#include <memory>
#include <string_view>

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "machine/ceilings.h"

namespace millrace {

// Memory of the GPU of that name; 0 if it is none.
int64_t gpu_memory(std::string_view name);

Result<std::unique_ptr<Backend>> open_device(std::string_view name, const CpuOptions& cpu);

// What that machine does at most, measured; of the CPU it is kept (machine/ceilings.h).
Result<Machine> measure_device(std::string_view name, const MachineOptions& cpu);

}  // namespace millrace
