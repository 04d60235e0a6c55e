// The prefix tree in a file, so that a server that starts again finds what it had computed. Only settled nodes are
// written, with their tokens and the bytes of their pages. A file is for one model and one layout of pages, names
// itself by a digest of both, and ends in a digest of everything before it: what does not match is refused and nothing
// is changed.
//
// All numbers are little-endian. "MRCACHE2", identity (32 bytes), page bytes (8), tokens a node (4), slots a node (4);
// then each node, parents first: a byte 1; index of the parent (4), or 0xFFFFFFFF and the key of its root (32); tokens
// (4) and that many ids (4 each); for each slot 1 if its page follows (1 each); the pages. After the last a byte 0, and
// at the end 32 bytes of digest.
//
// Whoever can read the file can read the prompts in it: it is written for its owner only. Engine thread, between steps.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <vector>

#include "base/token.h"
#include "cache/cache_summary.h"
#include "cache/identity.h"
#include "cache/kv_cache.h"
#include "cache/store.h"

namespace millrace {

// Of the model (whatever decides the bytes of its keys and values) and the layout of pages.
Identity cache_identity(const Identity& model, const CacheLayout& layout);

struct SavedNode {
  int64_t parent = -1;  // index of an earlier node, -1: the root
  Identity root;        // if parent is -1
  std::vector<Token> tokens;
  std::vector<uint8_t> present;      // by slot
  std::span<const std::byte> pages;  // those present, one after the other
};

struct SavedTree {
  Identity identity;
  int64_t page_bytes = 0;
  int node_tokens = 0, slots = 0;
  std::vector<SavedNode> nodes;
};

// Checks that the bytes are such a file in every length and index; the digest at the end is not looked at.
Result<SavedTree> parse_cache_file(std::span<const std::byte> bytes);

// What a cache holds as such a file, without the digest, a part at a time. Between parts the cache may change as it
// likes: what is gone when its turn comes is left out, with all that continues it.
class CacheSaver {
 public:
  CacheSaver(const KvCache& cache, const Identity& model) : cache_(cache), model_(model) {}
  // Appends the next nodes, at least one if any is left, until there are `most` bytes. False: that was all.
  bool next(const Store& store, const Store* second, size_t most, std::vector<std::byte>& out);
  const CacheFileSummary& summary() const { return summary_; }  // without bytes

 private:
  struct Place {
    NodeId id = kNoNode;
    uint64_t birth = 0;
  };
  void begin(const Store& store, std::vector<std::byte>& out);
  bool may_save(const Place& place, const Store* second) const;
  void append(NodeId id, const Store& holder, std::vector<std::byte>& out);

  const KvCache& cache_;
  const Identity model_;
  bool begun_ = false;
  std::vector<Place> order_;  // parents before children
  size_t at_ = 0;
  std::map<NodeId, uint32_t> index_;  // of the nodes that are written
  CacheFileSummary summary_;
};

Result<CacheFileSummary> save_cache(const KvCache& cache, const Identity& model, const Store& store,
                                    const Store* second, const std::filesystem::path& path);
// Adds what the file has, as far as pages are free; nothing that is there is pushed out. After an error of code io the
// file changed meanwhile, and what was added must not be used.
Result<CacheFileSummary> restore_cache(KvCache& cache, const Identity& model, Store& store,
                                       const std::filesystem::path& path);

// Takes everything out of a cache that nobody uses; returns how many nodes that were. No move may be on its way.
int forget_unused(KvCache& cache);

}  // namespace millrace
