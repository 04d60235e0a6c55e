// A backend for tests: the CPU, but as a machine apart would be.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

namespace millrace {

// What it computed is brought, row by row or in part.
class Apart final : public Backend {
 public:
  explicit Apart(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  std::string description() const override { return inner_->description(); }
  std::string numerics() const override { return inner_->numerics(); }
  int64_t weight_bytes(DType type, int64_t rows, int64_t cols, WeightUse use) const override {
    return inner_->weight_bytes(type, rows, cols, use);
  }
  Result<Weight> upload(const HostMatrix& matrix, WeightUse use, std::span<const float> bias) override {
    return inner_->upload(matrix, use, bias);
  }
  Result<Weight> upload_experts(const HostExperts& experts, std::span<const float> bias) override {
    return inner_->upload_experts(experts, bias);
  }
  Result<const float*> upload_vector(std::span<const float> values) override { return inner_->upload_vector(values); }
  Result<std::byte*> allocate(Purpose purpose, int64_t bytes) override { return inner_->allocate(purpose, bytes); }
  int64_t used(Purpose purpose) const override { return inner_->used(purpose); }
  void set_limit(int64_t bytes) override { inner_->set_limit(bytes); }
  int64_t fixed_workspace() const override { return inner_->fixed_workspace(); }
  Result<std::unique_ptr<Ops>> make_ops(int64_t bytes) override { return inner_->make_ops(bytes); }
  bool apart() const override { return true; }
  bool has_latents() const override { return inner_->has_latents(); }

 private:
  std::unique_ptr<Backend> inner_;
};

}  // namespace millrace
