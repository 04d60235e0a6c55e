#include "backend/trace/trace.h"

#include "backend/memory.h"

namespace millrace {
namespace {

// Not null, aligned, and never read.
template <class T>
T* nowhere() {
  return reinterpret_cast<T*>(kAlignment);
}

class TraceBackend final : public Backend {
 public:
  explicit TraceBackend(const Backend* like) : like_(like) {}

  std::string description() const override { return "trace: costs only"; }
  std::string numerics() const override { return "trace"; }

  int64_t weight_bytes(DType type, int64_t rows, int64_t cols, WeightUse use) const override {
    return like_ != nullptr ? like_->weight_bytes(type, rows, cols, use) : bytes_of(type, rows * cols);
  }

  // The bytes of the matrix may be missing.
  Result<Weight> upload(const HostMatrix& matrix, WeightUse use, std::span<const float> bias) override {
    int64_t bytes = weight_bytes(matrix.type, matrix.rows, matrix.cols, use);
    TRY_VOID(memory_.charge(Purpose::weights, bytes));
    Weight weight{matrix.type, matrix.rows, matrix.cols, nowhere<const std::byte>(), bytes, nullptr};
    if (!bias.empty()) {
      TRY(weight.bias, upload_vector(bias));
    }
    return weight;
  }

  Result<Weight> upload_experts(const HostExperts& experts, std::span<const float> bias) override {
    const int64_t stride = weight_bytes(experts.type, experts.rows, experts.cols, WeightUse::experts);
    Weight weight{experts.type, experts.rows, experts.cols, nowhere<const std::byte>(), stride * experts.experts};
    weight.experts = static_cast<int32_t>(experts.experts);
    weight.stride = stride;
    TRY_VOID(memory_.charge(Purpose::weights, weight.bytes));
    if (!bias.empty()) {
      TRY(weight.bias, upload_vector(bias));
    }
    return weight;
  }

  Result<const float*> upload_vector(std::span<const float> values) override {
    TRY_VOID(memory_.charge(Purpose::weights, static_cast<int64_t>(values.size_bytes())));
    // Each vector is somewhere else, so that ops can tell one set of frequencies from another.
    return reinterpret_cast<const float*>(kAlignment * ++vectors_);
  }

  Result<std::byte*> allocate(Purpose purpose, int64_t bytes) override {
    TRY_VOID(memory_.charge(purpose, bytes));
    return nowhere<std::byte>();
  }
  int64_t used(Purpose purpose) const override { return memory_.used(purpose); }
  void set_limit(int64_t bytes) override { memory_.set_limit(bytes); }
  int64_t fixed_workspace() const override { return like_ != nullptr ? like_->fixed_workspace() : 0; }

  Result<std::unique_ptr<Ops>> make_ops(int64_t workspace_bytes) override {
    TRY_VOID(memory_.charge(Purpose::workspace, workspace_bytes + fixed_workspace()));
    return std::unique_ptr<Ops>(std::make_unique<TraceOps>());
  }

 private:
  const Backend* like_;
  Memory memory_;
  int64_t vectors_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_trace_backend(const Backend* like) { return std::make_unique<TraceBackend>(like); }

}  // namespace millrace
