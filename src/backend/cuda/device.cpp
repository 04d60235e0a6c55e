#include "backend/cuda/device.h"

#include <algorithm>

#include "base/human.h"

namespace millrace::cuda {
namespace {

std::string text(int64_t bytes) { return brief_bytes(static_cast<uint64_t>(bytes)); }

}  // namespace

Result<void> checked(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return {};
  return error(status == cudaErrorMemoryAllocation ? Code::no_memory : Code::internal, "CUDA: {}: {}", what,
               cudaGetErrorString(status));
}

DeviceMemory::~DeviceMemory() {
  for (void* memory : device_) cudaFree(memory);
  for (void* memory : host_) cudaFreeHost(memory);
}

Result<void> DeviceMemory::charge(Purpose purpose, int64_t bytes) {
  int64_t taken = 0;
  for (int64_t one : used_) taken += one;
  if (bytes > limit_ - taken) {
    return error(Code::no_memory, "{} for {} do not fit: {} of {} are taken; allow more memory or ask for less",
                 text(bytes), purpose_name(purpose), text(taken), text(limit_));
  }
  used_[static_cast<size_t>(purpose)] += bytes;
  return {};
}

Result<std::byte*> DeviceMemory::take(Purpose purpose, int64_t bytes) {
  TRY_VOID(charge(purpose, bytes));
  void* memory = nullptr;
  const auto length = static_cast<size_t>(bytes > 0 ? bytes : 1);
  if (cudaMalloc(&memory, length) != cudaSuccess) {
    cudaGetLastError();
    used_[static_cast<size_t>(purpose)] -= bytes;
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return error(Code::no_memory, "the GPU has no {} for {}: {} of {} are free", text(bytes), purpose_name(purpose),
                 brief_bytes(free), brief_bytes(total));
  }
  device_.push_back(memory);
  // Done before any other stream's work, like all copies of loading that came before it on this one.
  TRY_VOID(checked(cudaMemset(memory, 0, length), "clearing memory"));
  TRY_VOID(checked(cudaStreamSynchronize(nullptr), "clearing memory"));
  return static_cast<std::byte*>(memory);
}

Result<std::byte*> DeviceMemory::take_host(Purpose purpose, int64_t bytes) {
  TRY_VOID(charge(purpose, bytes));
  void* memory = nullptr;
  const auto length = static_cast<size_t>(bytes > 0 ? bytes : 1);
  if (cudaMallocHost(&memory, length) != cudaSuccess) {
    cudaGetLastError();
    used_[static_cast<size_t>(purpose)] -= bytes;
    return error(Code::no_memory, "the system has no {} of pinned memory for {}", text(bytes), purpose_name(purpose));
  }
  host_.push_back(memory);
  std::fill_n(static_cast<char*>(memory), length, '\0');
  return static_cast<std::byte*>(memory);
}

}  // namespace millrace::cuda
