// Which machine computes, by the name people give it: cpu, cuda, cuda:1, auto (a GPU if there is one), reference.
#pragma once

#include <memory>
#include <string_view>

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "machine/ceilings.h"

namespace millrace {

// GPUs for ranks, one each, between which NCCL moves rows (backend/cuda/nccl_comm.h); else it is as cuda.
inline constexpr std::string_view kNcclDevice = "nccl";

// Memory of the GPU of that name; 0 if it is none.
int64_t gpu_memory(std::string_view name);

Result<std::unique_ptr<Backend>> open_device(std::string_view name, const CpuOptions& cpu);
// The same for a rank (backend/ranks): of several GPUs ranks have one each in turn, from the named one on; of one GPU
// each has a stream of its own.
Result<std::unique_ptr<Backend>> open_rank_device(std::string_view name, const CpuOptions& cpu, int rank);
// GPUs that ranks would have in turn; 0: the name is none of a GPU.
Result<int> gpus_for_ranks(std::string_view name);

// What that machine does at most, measured; of the CPU it is kept (machine/ceilings.h).
Result<Machine> measure_device(std::string_view name, const MachineOptions& cpu);

}  // namespace millrace
