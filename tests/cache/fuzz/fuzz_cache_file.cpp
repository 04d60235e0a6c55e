// Any bytes at all as a saved cache: refused or understood, never more. The digest is not part of this, or nothing
// would get past it.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "cache/cache_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  auto tree = parse_cache_file(std::as_bytes(std::span(data, size)));
  if (!tree.ok()) return 0;
  size_t bytes = 0;
  for (const SavedNode& node : tree->nodes) {
    CHECK(node.tokens.size() <= static_cast<size_t>(tree->node_tokens), "too many tokens");
    CHECK(node.present.size() == static_cast<size_t>(tree->slots), "slots");
    bytes += node.pages.size() + 4 * node.tokens.size() + node.present.size();
  }
  CHECK(bytes <= size, "{} bytes out of {}", bytes, size);
  return 0;
}
