// What the files say of how a text becomes a vector: sentence-transformers' modules beside the weights, or the keys and
// tensors of a GGUF file. Used while a ModelSource is opened; pure.
#pragma once

#include <string>
#include <string_view>

#include "model/config.h"
#include "model/spec.h"
#include "tensor/checkpoint.h"

namespace millrace {

// What modules.json says, as Checkpoint::modules() gives it: a list of {type, path, config}.
Result<PoolSpec> read_modules(const Json& modules);
// Fills spec.pool where the files say something. Errors name the module and what is not supported.
Result<void> settle_pool(const Checkpoint& checkpoint, Config& config, ModelSpec& spec);
// The name that the file has for a product after pooling, where the files say it; else empty.
std::string projection_file(const ModelSpec& spec, std::string_view slot);
// A tensor of a head that an encoder was trained with and that nobody reads.
bool is_other_head(std::string_view name);

Result<Pooling> pooling_from_name(std::string_view name);  // cls, mean, last, max, mean_sqrt_len, weightedmean
std::string_view pooling_name(Pooling pooling);
int32_t pooling_number(Pooling pooling);  // GGUF's pooling_type; 0: it has none for it

}  // namespace millrace
