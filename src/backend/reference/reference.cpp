#include "backend/reference/reference.h"

#include <cstring>

#include "backend/matrix.h"
#include "backend/memory.h"
#include "backend/reference/ops.h"

namespace millrace {
namespace {

class ReferenceBackend final : public Backend {
 public:
  std::string description() const override { return "reference: float32, one thread"; }
  std::string numerics() const override { return "reference"; }

  int64_t weight_bytes(DType type, int64_t rows, int64_t cols, WeightUse) const override {
    return bytes_of(type, rows * cols);
  }

  Result<Weight> upload(const HostMatrix& matrix, WeightUse use, std::span<const float> bias) override {
    TRY_VOID(check_matrix(matrix, bias));
    Weight weight{
        matrix.type, matrix.rows, matrix.cols, nullptr, weight_bytes(matrix.type, matrix.rows, matrix.cols, use),
        nullptr};
    TRY(std::byte * copy, memory_.take(Purpose::weights, weight.bytes));
    std::memcpy(copy, matrix.bytes.data(), matrix.bytes.size());
    weight.data = copy;
    if (!bias.empty()) {
      TRY(weight.bias, upload_vector(bias));
    }
    return weight;
  }

  Result<Weight> upload_experts(const HostExperts& experts, std::span<const float> bias) override {
    TRY_VOID(check_experts(experts, bias));
    const int64_t stride = weight_bytes(experts.type, experts.rows, experts.cols, WeightUse::experts);
    Weight weight{experts.type, experts.rows, experts.cols, nullptr, stride * experts.experts, nullptr};
    weight.experts = static_cast<int32_t>(experts.experts);
    weight.stride = stride;
    TRY(std::byte * place, memory_.take(Purpose::weights, weight.bytes));
    for (int64_t e = 0; e < experts.experts; ++e) {
      TRY(const HostMatrix matrix, expert_matrix(experts, e));
      std::memcpy(place + e * stride, matrix.bytes.data(), matrix.bytes.size());
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
  int64_t fixed_workspace() const override { return 0; }

  Result<std::unique_ptr<Ops>> make_ops(int64_t workspace_bytes) override {
    TRY(std::byte * place, memory_.take(Purpose::workspace, workspace_bytes));
    return std::unique_ptr<Ops>(std::make_unique<ReferenceOps>(Arena(place, workspace_bytes)));
  }

 private:
  Memory memory_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace millrace
