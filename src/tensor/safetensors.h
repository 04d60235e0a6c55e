// Reading one safetensors file that is already in memory: eight bytes of header length, a JSON header, then the tensors
// end to end. Nothing is copied but names and shapes. Used by Checkpoint; pure, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tensor/checkpoint.h"

namespace millrace {

struct SafetensorsFile {
  std::vector<StoredTensor> tensors;                          // in the order of their bytes
  std::vector<std::pair<std::string, std::string>> metadata;  // the header's "__metadata__"
};

inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

// True if the first bytes are those of a safetensors file: a plausible length, then an opening brace.
bool looks_like_safetensors(std::span<const std::byte> file);

Result<SafetensorsFile> parse_safetensors(std::span<const std::byte> file);

// model.safetensors.index.json: which file holds which tensor. Names of files are plain names, never paths.
struct ShardIndex {
  std::vector<std::string> files;                       // each once, sorted
  std::vector<std::pair<std::string, size_t>> tensors;  // name, index into files
};
Result<ShardIndex> parse_shard_index(std::string_view text);

}  // namespace millrace
