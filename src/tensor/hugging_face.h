// The small JSON files of a Hugging Face directory, read from text. Used by Checkpoint and by tests; pure, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace millrace {

// An object. Python's Infinity and NaN, which real configs hold, are understood (NaN as null).
Result<Json> parse_config(std::string_view text);

// The chat template that tokenizer_config.json holds, if any.
std::optional<std::string> chat_template_of(const Json& tokenizer_config);

// How the config says the weights were quantised ("gptq, 4 bits"), if it does.
std::optional<std::string> quantisation_of(const Json& config);

// Why weights that are quantised as this config says cannot be read: a sentence that names the method. Nothing if the
// config says nothing, or a method whose tensors are understood (tensor/stored_matrix.h).
std::optional<std::string> refused_quantisation(const Json& config);

// How many weights share a scale where scales are for blocks: 128 x 128 unless the config says otherwise.
struct WeightBlock {
  int64_t rows = 128, cols = 128;
};
WeightBlock weight_block_of(const Json& config);

}  // namespace millrace
