// The files beside the weights of a directory that is written: config.json, which says how weights are stored in the
// words of those who read it (transformers, vLLM, AutoGPTQ, AutoAWQ), and the tokenizer's. One thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/checkpoint.h"
#include "tensor/packing.h"

namespace millrace {

struct PackedAs {
  PackLayout layout = PackLayout::gptq;
  CodeGrid grid;
  std::vector<std::string> kept;  // modules of layers that are not packed
  std::string maker;
};

Json quantisation_config(const PackedAs& how);
Result<void> write_side_files(const Checkpoint& from, const std::filesystem::path& folder, const PackedAs& how);

}  // namespace millrace
