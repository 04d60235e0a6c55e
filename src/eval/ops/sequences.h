// Sequences in a cache, for checks of attention: each has the same queries, keys and values, on pages of its own among
// everybody's, so a row of a position must come out the same in all of them. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eval/ops/scene.h"

namespace millrace {

struct AttentionKind {
  std::string name;
  int32_t heads = 0, kv_heads = 0, k_dim = 0, v_dim = 0, page_tokens = 0;
  int32_t window = 0;
  float softcap = 0;
  bool slopes = false, sinks = false;
  int32_t grid = 0, value_dim = 0;
  int32_t kept = 0;  // first positions beside the window; queries are turned back to where they are seen from
  bool neighbours = false;
  int32_t ahead = 0;

  int32_t value_width() const { return v_dim > 0 ? v_dim : value_dim; }
  bool fits(const KvForm& form) const;  // whether a cache may have such heads in this form
};

class KvSequences {
 public:
  static constexpr int32_t kMost = 6;

  KvSequences(Rig& rig, const AttentionKind& kind, const KvForm& form, int32_t tokens, uint64_t seed,
              int32_t count = kMost);
  // A step; what the pieces' rows give, in their order.
  Numbers step(std::span<const StepPiece> pieces);
  // Stores the keys and values of all positions, in steps of the most rows.
  void fill(int32_t sequence);

 private:
  Rig& rig_;
  const AttentionKind& kind_;
  Numbers q_, k_, v_;  // q_ begins anew after kQueries rows
  std::vector<int32_t> pages_;
  int32_t stride_ = 0;
  KvView view_;
  Attention attention_;
};

}  // namespace millrace
