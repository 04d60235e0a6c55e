// Writing a Hugging Face directory like the one a model was read from, with matrices as codes and scales in a layout
// that other engines load (tensor/packing.h): model.safetensors, config.json with what they are told of it, and the
// tokenizer's files as they were. The directory appears under its name only when whole. One thread.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/source.h"
#include "tensor/packing.h"

namespace millrace {

// The tensor of the file that a slot's numbers are rows of.
struct StoredAt {
  const StoredTensor* tensor = nullptr;
  std::vector<int64_t> rows;  // of the tensor, which the slot's are; empty: all in order
  bool transposed = false;
  bool less_one = false;  // a norm's weight that is stored less one
};
// Nothing where they are not rows of one tensor of plain numbers in a Hugging Face directory: experts in one tensor,
// latents, codes with scales, numbers that are changed as they are read.
std::optional<StoredAt> stored_at(const ModelSource& source, const Slot& slot, int64_t expert, bool bias);

struct DirectoryOptions {
  PackLayout layout = PackLayout::gptq;
  CodeGrid grid;
  // Codes of a slot's matrix or of one of its experts'; every one that can_pack() has them, others none.
  std::function<const GroupedCodes*(const Slot& slot, int64_t expert)> codes;
  std::function<bool(uint64_t done, uint64_t total)> progress;  // bytes of the result; false stops
  std::string maker;                                            // "millrace 1.2"
};

struct DirectoryReport {
  uint64_t bytes = 0;  // of the weights
  int tensors = 0;
  int packed = 0;                 // matrices
  std::vector<std::string> kept;  // modules of layers that stay as they are
};

// Whether a slot's matrix can be kept so: of a layer, alone or in a fused tensor, in whole groups and words.
bool can_pack(const ModelSource& source, const Slot& slot, PackLayout layout, const CodeGrid& grid);
// Whether numbers of a slot that were put can be written back.
bool can_write(const ModelSource& source, const Slot& slot);

// `source` was opened from a Hugging Face directory and may have been changed. `target` is not there.
Result<DirectoryReport> write_directory(const ModelSource& source, const std::filesystem::path& target,
                                        const DirectoryOptions& options);

}  // namespace millrace
