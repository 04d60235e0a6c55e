// TokenTrie: texts with a number each, laid flat in depth-first order, so that a walk that refuses a byte skips all
// texts that go on with it. Read only once made; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace millrace {

// A node is a byte; `skip` leads past what is below it.
class TokenTrie {
 public:
  struct Node {
    uint8_t byte = 0;
    uint8_t depth = 0;              // of the byte, from 0; texts over 255 bytes are left out
    uint8_t below = 0;              // kinds of the characters that texts have after this byte (char_kinds.h)
    uint32_t skip = 0;              // first node that is not below this one
    uint32_t first = 0, count = 0;  // ids of texts that end here, in ids()
  };
  TokenTrie() = default;
  explicit TokenTrie(std::vector<std::pair<std::string, int32_t>> texts);

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<int32_t>& ids() const { return ids_; }
  // Ids of all texts that end at a node or below it lie together: from its first to this.
  uint32_t last_id(size_t node) const {
    const uint32_t after = nodes_[node].skip;
    return after < nodes_.size() ? starts_[after] : static_cast<uint32_t>(ids_.size());
  }
  uint32_t first_id(size_t node) const { return starts_[node]; }
  const std::vector<int32_t>& empty() const { return empty_; }  // ids of the empty text

 private:
  std::vector<Node> nodes_;
  std::vector<uint32_t> starts_;  // by node: how many ids come before it
  std::vector<int32_t> ids_, empty_;
};

}  // namespace millrace
