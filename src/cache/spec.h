// What a layer keeps of the past, and how those needs are laid out over pages. Integers only: no memory, no formats.
//
// Each layer says what it keeps (CacheSpec). plan_layout() puts layers with equal needs into groups; a page belongs to
// one group at a time and holds, for every layer of that group, a stretch of tokens (or one recurrent state). All pages
// have the same size, so any group may take any free page of the one pool. Immutable after planning; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace millrace {

using PageId = int32_t;
inline constexpr PageId kNoPage = -1;

enum class CacheKind : uint8_t {
  paged,      // keys and values of every token
  windowed,   // keys and values of the last `window` tokens, a query at p reads positions > p - window; and of the
              // first `kept`
  latent,     // one compressed vector of every token
  recurrent,  // one state, whatever the length
};

// The need of one layer. `bytes` are per token (keys, values; a latent layer has only the first) or, if recurrent, per
// state (two parts, such as convolution and scan).
struct CacheSpec {
  CacheKind kind = CacheKind::paged;
  std::array<int64_t, 2> bytes = {0, 0};
  int window = 0;  // of a windowed layer
  int heads = 1;   // of a state: it may be cut into equal parts between them, each part with its share of both bytes
  int kept = 0;    // of a windowed layer: first tokens that stay whatever the window does

  friend bool operator==(const CacheSpec&, const CacheSpec&) = default;
};

// A copy of a page's bytes. Lists of copies are carried out in order.
struct PageCopy {
  PageId from = kNoPage;
  PageId to = kNoPage;
  friend bool operator==(const PageCopy&, const PageCopy&) = default;
};

using NodeId = int32_t;  // of the prefix tree
inline constexpr NodeId kNoNode = -1;

// Moving the bytes of a page before a step. Lists of moves are carried out in order.
struct PageMove {
  enum class Kind : uint8_t { copy, out, in };  // within the store; to the second store; back from it
  Kind kind = Kind::copy;
  PageId from = kNoPage, to = kNoPage;
  int64_t owner = -1;     // the sequence that cannot go on if an `in` fails
  NodeId node = kNoNode;  // whose page it is (out, in)
  uint64_t birth = 0;     // of that node: ids are used again
};

// Layers with equal needs. The kind answers here: how many pages n tokens need, which of them a query still reads, and
// where a prefix may end if it is to be reused.
struct CacheGroup {
  CacheSpec spec;
  std::vector<int> layers;  // of the model, ascending
  int page_tokens = 0;      // tokens a page holds; if recurrent, the distance of snapshots of the state
  int64_t layer_bytes = 0;  // of one layer's part of a page

  bool recurrent() const { return spec.kind == CacheKind::recurrent; }
  bool windowed() const { return spec.kind == CacheKind::windowed; }

  // Entries a page table needs for the first n tokens; some may be empty (forgets).
  int pages_for(int tokens) const { return recurrent() ? tokens > 0 : (tokens + page_tokens - 1) / page_tokens; }
  // Entries that stay: those of the first tokens that do.
  int pinned() const { return windowed() ? (spec.kept + page_tokens - 1) / page_tokens : 0; }
  // The first entry that a query at `position` or later reads or writes, pinned ones aside; 0 if it reads all. Pages
  // between the pinned ones and it may be given back.
  int first_needed(int position) const {
    const int first = windowed() && position >= spec.window ? (position - spec.window + 1) / page_tokens : 0;
    return first > pinned() ? first : 0;
  }
  // Entries that a query at `position` or later does not read, and how many they are.
  bool forgets(int entry, int position) const { return entry >= pinned() && entry < first_needed(position); }
  int forgotten(int position) const { return std::max(0, first_needed(position) - pinned()); }
  // Pages held at once while computing tokens [begin, end).
  int pages_held(int begin, int end) const { return end > begin ? pages_for(end) - forgotten(begin) : 0; }
  // The most pages held at once on the way to so many tokens, computing at most `chunk` in a step.
  int peak_pages_for(int tokens, int chunk) const;
  // True if what is kept lets a sequence go on at any position (false: only where a state was kept).
  bool resumes_anywhere() const { return !recurrent(); }
};

// A layer's place: which group, and where its two parts start inside a page of that group. A state that is cut lies in
// as many groups, one after another, at the same offsets in each.
struct LayerPlace {
  int group = -1;  // -1: the layer keeps nothing
  std::array<int64_t, 2> offsets = {0, 0};
  int cuts = 1;
};

struct CacheLayout {
  int64_t page_bytes = 0;
  int node_tokens = 0;  // tokens of a node of the prefix tree: the largest page_tokens, a multiple of all others
  std::vector<CacheGroup> groups;
  std::vector<LayerPlace> layers;  // one per layer of the model

  // Pages a sequence of n tokens holds at its end if it shares nothing.
  int pages_for(int tokens) const;
  // The most it holds at any time on the way, computing at most `chunk` tokens a step.
  int peak_pages_for(int tokens, int chunk) const;
  bool resumes_anywhere() const;
  // What a sequence had better find besides, for states that are kept for its next turn: one where its prompt ends, one
  // where its answer does.
  int kept_pages() const;
  // The same pages with the layers [begin, end) of so many alone: as many pages, numbered alike, and smaller.
  CacheLayout with_layers(int begin, int end, int of) const;
  // The part of the pages of n tokens (a multiple of node_tokens) in which no layer keeps anything.
  double waste(int tokens) const;
};

struct LayoutOptions {
  int page_tokens = 16;       // a power of two; where layers differ, pages of some may hold more
  int snapshot_tokens = 256;  // distance of recurrent snapshots; rounded up to whole nodes
};

// Parts inside a page start at multiples of this many bytes.
inline constexpr int64_t kPageAlignment = 64;

// How far apart states are kept along a prompt: so that they take a quarter of what its keys and values do, but no
// closer than 256 tokens and no further than 4,096.
int usual_snapshot_tokens(std::span<const CacheSpec> layers);

// Layers whose bytes are zero keep nothing (they read another layer's keys). Where needs differ, the page is as large
// as makes a sequence of usual length take the fewest bytes: large groups are cut into several, small ones hold more
// tokens a page, states are cut between heads.
Result<CacheLayout> plan_layout(std::span<const CacheSpec> layers, const LayoutOptions& options = {});

}  // namespace millrace
