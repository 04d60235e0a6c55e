// Reading one GGUF file (version 2 or 3, little-endian) that is already in memory. Nothing is copied but names and
// shapes: metadata and tensors are views into `file`. Used by Checkpoint; pure, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "tensor/checkpoint.h"
#include "tensor/metadata.h"

namespace millrace {

struct GgufFile {
  uint32_t version = 0;
  Metadata metadata;
  std::vector<StoredTensor> tensors;  // in the order of the header
};

// Every byte must be accounted for: header, padding, tensors end to end at the file's alignment, and behind the last
// one at most zeros up to the alignment. Allocates no more than a small multiple of the header's size.
Result<GgufFile> parse_gguf(std::span<const std::byte> file);

}  // namespace millrace
