// What the host side of the CUDA backend shares: errors as Results, memory on the device and beside it. One thread, the
// one that uses the backend.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"

namespace millrace::cuda {

Result<void> checked(cudaError_t status, std::string_view what);

// Memory by purpose under one limit, released together. Staging memory is the host's, known to the device, and has a
// twin on the device that steps read: both are counted.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  Result<std::byte*> take(Purpose purpose, int64_t bytes);       // zeroed, on the device
  Result<std::byte*> take_host(Purpose purpose, int64_t bytes);  // zeroed, the host's, known to the device
  int64_t used(Purpose purpose) const { return used_[static_cast<size_t>(purpose)]; }
  void set_limit(int64_t bytes) { limit_ = bytes; }

 private:
  Result<void> charge(Purpose purpose, int64_t bytes);

  std::array<int64_t, kPurposes> used_{};
  int64_t limit_ = INT64_MAX;
  std::vector<void*> device_, host_;
};

// A stretch of staging memory and its twin.
struct Staging {
  std::byte* host = nullptr;
  std::byte* device = nullptr;
  int64_t bytes = 0;
};

}  // namespace millrace::cuda
