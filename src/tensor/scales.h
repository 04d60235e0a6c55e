// FP8 weights (E4M3) with scales beside them, as checkpoints made for GPU servers have them: `x.weight` and
// `x.weight_scale`, one for the tensor or for each row, or `x.weight_scale_inv`, one for each block. A weight is its
// number times its scale. Pure, any thread.
#pragma once

#include <span>
#include <string_view>

#include "tensor/checkpoint.h"

namespace millrace {

struct Scales {
  const StoredTensor* tensor = nullptr;  // none: the weights are what they say
  int64_t rows_each = 0, cols_each = 0;  // of the weights that share a scale
};

// The scales of a weight. An error if there are some that cover it in no way known.
Result<Scales> scales_of(const Checkpoint& checkpoint, const StoredTensor& weight);

// Whether a tensor of this name is a scale of what may be FP8 elsewhere and is not here: inputs of products, the cache.
bool is_scale_of_activations(std::string_view name);
// That, or of weights: no parameter of a model.
bool is_scale(std::string_view name);

// These rows of the weight times their scales, in bfloat16: rounded to float32, then to it.
Result<void> read_scaled(const StoredTensor& weight, const Scales& scales, std::span<const int64_t> rows,
                         std::span<std::byte> out);

}  // namespace millrace
