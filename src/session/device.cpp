#include "session/device.h"

#include <algorithm>
#include <charconv>

#include "backend/cuda/cuda.h"
#include "backend/reference/reference.h"

namespace millrace {
namespace {

// The GPU's number, or -1 if the name is not one of a GPU.
Result<int> gpu_of(std::string_view name) {
  if (name == "auto") {
    const std::vector<CudaDevice> devices = cuda_devices();
    const auto usable = std::ranges::find_if(devices, [](const CudaDevice& device) { return device.refusal.empty(); });
    return usable == devices.end() ? -1 : static_cast<int>(usable - devices.begin());
  }
  if (name == "cuda" || name == kNcclDevice) return 0;
  if (!name.starts_with("cuda:")) return -1;
  const std::string_view digits = name.substr(5);
  int number = -1;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (failure != std::errc() || end != digits.data() + digits.size() || number < 0)
    return error(Code::invalid, "device '{}': give cuda or cuda:NUMBER", name);
  return number;
}

}  // namespace

int64_t gpu_memory(std::string_view name) {
  const auto gpu = gpu_of(name);
  const std::vector<CudaDevice> devices = gpu.ok() && *gpu >= 0 ? cuda_devices() : std::vector<CudaDevice>();
  return gpu.ok() && *gpu >= 0 && *gpu < static_cast<int>(devices.size()) ? devices[static_cast<size_t>(*gpu)].memory
                                                                          : 0;
}

Result<std::unique_ptr<Backend>> open_device(std::string_view name, const CpuOptions& cpu) {
  TRY(const int gpu, gpu_of(name));
  const bool rounds = cpu.activations == Activations::fast;
  if (gpu >= 0) return make_cuda_backend({.device = gpu, .rounds_inputs = rounds});
  if (name == "reference") return make_reference_backend();
  if (name == "cpu" || name == "auto") return make_cpu_backend(cpu);
  return error(Code::invalid, "no device '{}'; there are cpu, cuda, cuda:NUMBER, nccl, auto and reference", name);
}

Result<int> gpus_for_ranks(std::string_view name) {
  TRY(const int gpu, gpu_of(name));
  return gpu < 0 ? 0 : static_cast<int>(cuda_devices().size());
}

// Steps are not recorded: ranks wait for one another in the middle of them.
Result<std::unique_ptr<Backend>> open_rank_device(std::string_view name, const CpuOptions& cpu, int rank) {
  TRY(const int gpu, gpu_of(name));
  if (gpu < 0) return open_device(name, cpu);
  const int gpus = std::max<int>(1, static_cast<int>(cuda_devices().size()));
  return make_cuda_backend({.device = gpu < gpus ? (gpu + rank) % gpus : gpu,
                            .graphs = false,
                            .rounds_inputs = cpu.activations == Activations::fast});
}

Result<Machine> measure_device(std::string_view name, const MachineOptions& cpu) {
  TRY(const int gpu, gpu_of(name));
  if (gpu < 0) return measure_machine(cpu);
  TRY(const CudaPeaks peaks, measure_cuda_peaks(gpu));
  // All products and attention go through the same matrix instructions there.
  return Machine{.processor = peaks.name,
                 .isa = "cuda",
                 .threads = 1,
                 .read_bytes = peaks.read_bytes,
                 .int8_operations = peaks.bf16_operations,
                 .bf16_operations = peaks.bf16_operations,
                 .f32_operations = peaks.bf16_operations};
}

}  // namespace millrace
