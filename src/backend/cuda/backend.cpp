#include <cstdlib>
#include <memory>

#include "backend/cuda/capability.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/ops.h"
#include "backend/cuda/weights.h"
#include "backend/matrix.h"
#include "base/team.h"

namespace millrace {
namespace cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaOptions& options, const cudaDeviceProp& gpu, const Family& family)
      : options_(options), name_(gpu.name), major_(gpu.major), minor_(gpu.minor), family_(family) {}
  ~CudaBackend() override {
    way_.close();
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  Result<void> open() {
    TRY_VOID(choose());
    TRY_VOID(checked(family_.load(), "making kernels ready for this GPU (a driver for CUDA 13 or newer is needed)"));
    return checked(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
  }

  std::string description() const override {
    return fmt::format("cuda: {}, {} kernels{}", name_, family_.name,
                       options_.rounds_inputs ? "" : " with inputs of 16 bits");
  }

  std::string numerics() const override { return numerics_for(family_.name, major_, minor_, options_.rounds_inputs); }

  int64_t weight_bytes(DType type, int64_t rows, int64_t cols, WeightUse use) const override {
    return kept_as(type, rows, cols, use, family_, options_.rounds_inputs).bytes;
  }

  Result<Weight> upload(const HostMatrix& matrix, WeightUse use, std::span<const float> bias) override {
    TRY_VOID(check_matrix(matrix, bias));
    const Kept kept = kept_as(matrix.type, matrix.rows, matrix.cols, use, family_, options_.rounds_inputs);
    TRY(std::byte * place, memory_.take(Purpose::weights, kept.bytes));
    TRY_VOID(make_room());
    TRY_VOID(way_.bring(matrix, kept, place, *team_, stream_));
    if (kept.layout == kPanels) (kept.type == DType::f16 ? f16_bytes_ : bf16_bytes_) += kept.bytes;
    Weight weight{kept.type, matrix.rows, matrix.cols, place, kept.bytes, nullptr, kept.layout};
    if (!bias.empty()) {
      TRY(weight.bias, upload_vector(bias));
    }
    return weight;
  }

  Result<Weight> upload_experts(const HostExperts& experts, std::span<const float> bias) override {
    TRY_VOID(check_experts(experts, bias));
    const Kept kept = kept_as(experts.type, experts.rows, experts.cols, WeightUse::experts, family_, false);
    TRY(std::byte * place, memory_.take(Purpose::weights, kept.bytes * experts.experts));
    TRY_VOID(make_room());
    for (int64_t e = 0; e < experts.experts; ++e) {
      TRY(const HostMatrix matrix, expert_matrix(experts, e));
      TRY_VOID(way_.bring(matrix, kept, place + e * kept.bytes, *team_, stream_));
    }
    if (kept.layout == kPanels) (kept.type == DType::f16 ? f16_bytes_ : bf16_bytes_) += kept.bytes * experts.experts;
    Weight weight{kept.type, experts.rows, experts.cols, place, kept.bytes * experts.experts, nullptr, kept.layout};
    weight.experts = static_cast<int32_t>(experts.experts);
    weight.stride = kept.bytes;
    if (!bias.empty()) {
      TRY(weight.bias, upload_vector(bias));
    }
    return weight;
  }

  Result<const float*> upload_vector(std::span<const float> values) override {
    TRY(std::byte * place, memory_.take(Purpose::weights, static_cast<int64_t>(values.size_bytes())));
    TRY_VOID(
        checked(cudaMemcpy(place, values.data(), values.size_bytes(), cudaMemcpyHostToDevice), "bringing numbers"));
    return reinterpret_cast<const float*>(place);
  }

  // Staging is the host's; what a step uses of it is brought to its twin on the device as the step begins.
  Result<std::byte*> allocate(Purpose purpose, int64_t bytes) override {
    TRY_VOID(choose());
    if (purpose != Purpose::staging) return memory_.take(purpose, bytes);
    TRY(std::byte * host, memory_.take_host(purpose, bytes));
    TRY(std::byte * device, memory_.take(purpose, bytes));
    staging_.push_back({host, device, bytes});
    return host;
  }
  int64_t used(Purpose purpose) const override { return memory_.used(purpose); }
  void set_limit(int64_t bytes) override { memory_.set_limit(bytes); }
  int64_t fixed_workspace() const override { return kFixedBytes + kPinnedBytes; }

  bool apart() const override { return true; }
  bool has_latents() const override { return true; }
  bool has_streams() const override { return true; }
  bool has_states() const override { return true; }
  int64_t staging_bytes(int64_t bytes) const override { return 2 * bytes; }
  Result<std::byte*> allocate_results(int64_t bytes) override { return memory_.take_host(Purpose::staging, bytes); }
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_);
    cudaStreamSynchronize(stream_);
  }

  Result<std::unique_ptr<Ops>> make_ops(int64_t workspace_bytes) override {
    TRY_VOID(choose());
    TRY(std::byte * place, memory_.take(Purpose::workspace, kFixedBytes + workspace_bytes));
    TRY(std::byte * pinned, memory_.take_host(Purpose::workspace, kPinnedBytes));
    way_.close();
    team_.reset();
    CudaOps::Parts parts = {.stream = stream_,
                            .family = &family_,
                            .arena = Arena(place + kFixedBytes, workspace_bytes),
                            .fixed = place,
                            .plan_host = reinterpret_cast<int32_t*>(pinned),
                            .staging = &staging_,
                            .half = f16_bytes_ > bf16_bytes_ ? Form::f16 : Form::bf16,
                            .graphs = options_.graphs};
    return std::unique_ptr<Ops>(std::make_unique<CudaOps>(std::move(parts)));
  }

 private:
  // A rank is loaded on one thread and runs on another.
  Result<void> choose() { return checked(cudaSetDevice(options_.device), "choosing the GPU"); }
  Result<void> make_room() {
    if (team_ != nullptr) return {};
    TRY_VOID(way_.open());
    team_ = std::make_unique<Team>(Team::usual());
    return {};
  }

  CudaOptions options_;
  std::string name_;
  int major_, minor_;  // its compute capability
  const Family& family_;
  cudaStream_t stream_ = nullptr;
  WayThere way_;  // of weights, while loading
  std::unique_ptr<Team> team_;
  std::vector<Staging> staging_;
  int64_t f16_bytes_ = 0, bf16_bytes_ = 0;
  DeviceMemory memory_;
};

}  // namespace
}  // namespace cuda

bool cuda_built() { return true; }

std::vector<CudaDevice> cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  std::vector<CudaDevice> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    CudaDevice device = {properties.name, static_cast<int64_t>(properties.totalGlobalMem)};
    const auto family = cuda::choose_family(properties.name, properties.major, properties.minor);
    if (family.ok())
      device.kernels = (*family)->name;
    else
      device.refusal = family.error().message;
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options) {
  const std::vector<CudaDevice> devices = cuda_devices();
  if (options.device < 0 || options.device >= static_cast<int>(devices.size())) {
    return error(Code::not_found, "GPU {} of {}: there is none such; use --device cpu", options.device, devices.size());
  }
  cudaDeviceProp properties;
  TRY_VOID(cuda::checked(cudaGetDeviceProperties(&properties, options.device), "asking the GPU"));
  TRY(const cuda::Family* family, cuda::choose_family(properties.name, properties.major, properties.minor));
  CudaOptions settled = options;
  if (const char* graphs = std::getenv("MILLRACE_CUDA_GRAPHS"); graphs != nullptr && graphs[0] == '0')
    settled.graphs = false;
  auto backend = std::make_unique<cuda::CudaBackend>(settled, properties, *family);
  TRY_VOID(backend->open());
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace millrace
