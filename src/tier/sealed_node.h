// A node of the prefix tree as it lies in a store that others can write to: named by what it belongs to and sealed, so
// that nobody without the secret can plant or change pages, or move them elsewhere.
//
// All numbers are little-endian. "MRPAGE1\0", identity (32 bytes: of model, arithmetic and layout of pages), chain (32:
// of tenant and all tokens up to its end), slots (4), for each slot 1 if its page follows (1 each), page bytes (8), the
// pages, 32 bytes of BLAKE2s over all before under a key from the secret. Any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cache/page_tier.h"

namespace millrace {

// What all nodes of one engine have in common.
struct NodeSeal {
  Identity identity;
  std::array<uint8_t, 32> key = {};  // from the secret that replicas share
  int slots = 0;
  int64_t page_bytes = 0;
};

NodeSeal make_seal(const Identity& identity, std::span<const uint8_t, 32> secret, int slots, int64_t page_bytes);

// The name in the store: nobody learns from it what was asked.
std::string node_key(const NodeSeal& seal, const Identity& chain);
std::string seal_node(const NodeSeal& seal, const TierNode& node);
// The most bytes a sealed node has.
size_t most_sealed_bytes(const NodeSeal& seal);
size_t sealed_lead(const NodeSeal& seal);  // bytes before the pages
struct SealedHead {
  Identity chain;
  size_t bytes = 0;
};
// What a sealed node says of itself, not believed yet; none if it is of something else. Needs the lead only.
std::optional<SealedHead> sealed_head(const NodeSeal& seal, std::string_view bytes);
// Refused unless it is the node of this chain, whole, sealed with this key.
Result<TierNode> open_node(const NodeSeal& seal, const Identity& chain, std::string_view bytes);

}  // namespace millrace
