#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/cpu/cpu.h"
#include "backend/cpu/ops.h"
#include "backend/matrix.h"
#include "backend/memory.h"
#include "backend/ranks/ranks.h"
#include "backend/rest.h"
#include "tensor/formats/layout.h"
#include "tensor/half.h"

namespace millrace {
namespace cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const CpuOptions& options, const Kernels& kernels)
      : team_(options.threads > 0 ? options.threads : Team::usual()),
        kernels_(kernels),
        activations_(options.activations) {}

  std::string description() const override {
    return fmt::format("cpu: {}, {} thread{}, {} activations", kernels_.name, team_.workers(),
                       team_.workers() == 1 ? "" : "s", activations_ == Activations::fast ? "fast" : "float32");
  }

  std::string numerics() const override {
    return fmt::format("cpu {} {}", kernels_.name, activations_ == Activations::fast ? "fast" : "float32");
  }

  int64_t weight_bytes(DType type, int64_t rows, int64_t cols, WeightUse use) const override {
    type = kept_as(type);
    const LinearKernel& kernel = kernel_of(type);
    // Whole lines, so that every expert's matrix begins with one.
    return packs(kernel, use) ? aligned(kernel.packed_bytes(rows, cols)) : bytes_of(type, rows * cols);
  }

  Result<Weight> upload(const HostMatrix& filed, WeightUse use, std::span<const float> bias) override {
    TRY_VOID(check_matrix(filed, bias));
    std::vector<std::byte> room;
    const HostMatrix matrix = as_kept(filed, room);
    const LinearKernel& kernel = kernel_of(matrix.type);
    Weight weight{
        matrix.type, matrix.rows, matrix.cols, nullptr, weight_bytes(matrix.type, matrix.rows, matrix.cols, use),
        nullptr,     kAsFile};
    TRY(std::byte * place, memory_.take(Purpose::weights, weight.bytes));
    weight.data = place;
    if (packs(kernel, use)) {
      pack(kernel, matrix, place);
      weight.layout = kPacked;
    } else {
      std::memcpy(place, matrix.bytes.data(), matrix.bytes.size());
    }
    if (!bias.empty()) {
      TRY(weight.bias, upload_vector(bias));
    }
    return weight;
  }

  Result<Weight> upload_experts(const HostExperts& experts, std::span<const float> bias) override {
    TRY_VOID(check_experts(experts, bias));
    const DType type = kept_as(experts.type);
    const LinearKernel& kernel = kernel_of(type);
    const bool packed = packs(kernel, WeightUse::linear);
    const int64_t stride = weight_bytes(experts.type, experts.rows, experts.cols, WeightUse::experts);
    Weight weight{
        type, experts.rows, experts.cols, nullptr, stride * experts.experts, nullptr, packed ? kPacked : kAsFile};
    weight.experts = static_cast<int32_t>(experts.experts);
    weight.stride = stride;
    TRY(std::byte * place, memory_.take(Purpose::weights, weight.bytes));
    std::vector<std::byte> room;
    for (int64_t e = 0; e < experts.experts; ++e) {
      TRY(const HostMatrix filed, expert_matrix(experts, e));
      const HostMatrix matrix = as_kept(filed, room);
      if (packed) {
        pack(kernel, matrix, place + e * stride);
      } else {
        std::memcpy(place + e * stride, matrix.bytes.data(), matrix.bytes.size());
      }
    }
    weight.data = place;
    if (!bias.empty()) {
      TRY(weight.bias, upload_vector(bias));
    }
    return weight;
  }

  Result<const float*> upload_vector(std::span<const float> values) override {
    TRY(std::byte * copy, memory_.take(Purpose::weights, static_cast<int64_t>(values.size_bytes())));
    std::memcpy(copy, values.data(), values.size_bytes());
    return reinterpret_cast<const float*>(copy);
  }

  Result<std::byte*> allocate(Purpose purpose, int64_t bytes) override { return memory_.take(purpose, bytes); }
  int64_t used(Purpose purpose) const override { return memory_.used(purpose); }
  void set_limit(int64_t bytes) override { memory_.set_limit(bytes); }
  int64_t fixed_workspace() const override { return fixed_bytes(team_.workers()); }
  void rest() { team_.rest(); }
  DType fastest_kv() const { return activations_ == Activations::fast ? kernels_.fastest_kv : DType::f16; }

  Result<std::unique_ptr<Ops>> make_ops(int64_t workspace_bytes) override {
    TRY(std::byte * place, memory_.take(Purpose::workspace, fixed_workspace() + workspace_bytes));
    Arena arena(place + fixed_workspace(), workspace_bytes);
    return std::unique_ptr<Ops>(std::make_unique<CpuOps>(team_, kernels_, activations_, arena, place));
  }

 private:
  const LinearKernel& kernel_of(DType type) const {
    return kernels_.linear[static_cast<size_t>(activations_)][static_cast<size_t>(type)];
  }
  // INT8_128 says how inputs may be rounded, which here they are for every 32: it is kept as Q8_0, the same codes.
  static DType kept_as(DType type) { return type == DType::int8_128 ? DType::q8_0 : type; }
  static HostMatrix as_kept(const HostMatrix& matrix, std::vector<std::byte>& room) {
    if (matrix.type != DType::int8_128) return matrix;
    const int64_t groups = matrix.rows * matrix.cols / 128;
    room.resize(static_cast<size_t>(groups * 4) * sizeof(layout::Q8_0));
    const auto* from = reinterpret_cast<const layout::Int8Wide*>(matrix.bytes.data());
    auto* to = reinterpret_cast<layout::Q8_0*>(room.data());
    for (int64_t i = 0; i < groups * 4; ++i) {
      const layout::Int8Wide& group = from[i / 4];
      const auto factor = std::bit_cast<float>(layout::load_u32(group.d));
      layout::store_u16(to[i].d, f32_to_f16(std::clamp(factor, -65504.0f, 65504.0f)));
      std::memcpy(to[i].codes, group.codes + i % 4 * 32, 32);
    }
    HostMatrix kept = matrix;
    kept.type = DType::q8_0;
    kept.bytes = room;
    return kept;
  }
  static bool packs(const LinearKernel& kernel, WeightUse use) {
    return use != WeightUse::table && kernel.pack != nullptr;
  }

  // Every worker packs about the outputs it will read later, so that they lie near it: memory belongs to the node of
  // whoever touches it first.
  void pack(const LinearKernel& kernel, const HostMatrix& matrix, std::byte* place) {
    const int64_t tile = kernel.outputs_tile, tiles = (matrix.rows + tile - 1) / tile;
    team_.run([&](int worker, int workers) {
      const int64_t begin = tiles * worker / workers * tile, end = tiles * (worker + 1) / workers * tile;
      if (begin < end)
        kernel.pack(matrix.bytes.data(), matrix.rows, matrix.cols, begin, std::min(matrix.rows, end), place);
    });
  }

  Team team_;
  Kernels kernels_;
  Activations activations_;
  Memory memory_;
};

}  // namespace
}  // namespace cpu

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options) {
  if (options.threads < 0 || options.threads > 1024) {
    return error(Code::invalid, "{} threads; give a number from 1 to 1024, or 0 for one per core", options.threads);
  }
  TRY(cpu::Kernels kernels, cpu::choose_kernels(options.isa));
  return std::unique_ptr<Backend>(std::make_unique<cpu::CpuBackend>(options, kernels));
}

bool rest_backend(Backend& backend) {
  auto* on_cpu = dynamic_cast<cpu::CpuBackend*>(&backend);
  if (on_cpu != nullptr) on_cpu->rest();
  return on_cpu != nullptr;
}

DType fastest_kv(const Backend& backend) {
  const auto* on_cpu = dynamic_cast<const cpu::CpuBackend*>(&below(backend));
  return on_cpu != nullptr ? on_cpu->fastest_kv() : DType::f16;
}

}  // namespace millrace
