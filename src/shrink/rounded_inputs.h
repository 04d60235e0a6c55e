// What products of a model's layers read, rounded to 8 bits as other engines run W8A8 files: of each token the largest
// number becomes 127, and the others follow. For judging such files. One thread.
#pragma once

#include <unordered_set>
#include <vector>

#include "backend/observe/observe.h"
#include "model/model.h"

namespace millrace {

class RoundedInputs final : public Watcher {
 public:
  explicit RoundedInputs(const Model& model);

  Tensor instead(const Weight& weight, Tensor in) override;
  void product(const Weight&, Tensor, Tensor) override {}
  void product_of_experts(const Weight&, const Routing&, ExpertInput, Tensor) override {}
  void added(Tensor, Tensor) override {}

 private:
  std::unordered_set<const std::byte*> weights_;
  std::vector<float> rows_;
};

void round_to_8_bits(const float* in, float* out, int64_t count);

}  // namespace millrace
