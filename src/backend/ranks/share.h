// Which part of a model a rank has: some outputs of every matrix, some key/value heads of every layer with the query
// heads that read them. Functions of shapes, ranks and the rank alone, so that every rank knows what all have.
#pragma once

#include <cstdint>

namespace millrace {

inline constexpr int64_t kLeastRows = 16;  // of a rank; matrices with fewer for each are whole on every rank

inline bool is_cut(int64_t rows, int ranks) { return ranks > 1 && rows >= kLeastRows * ranks; }

// The first output of a rank, of a matrix that is cut; of rank `ranks`: all of them. Equal parts, so that parts of
// queries are whole heads, or else whole tiles. They begin on multiples of sixteen bytes.
inline int64_t first_row(int64_t rows, int ranks, int rank) {
  if (rows % ranks == 0 && rows / ranks % 4 == 0) return rows / ranks * rank;
  return rank == ranks ? rows : rows * rank / ranks / kLeastRows * kLeastRows;
}

// Whole experts, for ranks that have them so: the first of a rank; of rank `ranks`: all of them. Fewer experts than
// ranks are cut by outputs.
inline bool has_whole_experts(int64_t experts, int ranks) { return ranks > 1 && experts >= ranks; }
inline int64_t first_expert(int64_t experts, int ranks, int rank) { return experts * rank / ranks; }

// The first layer of a rank that has whole layers; of rank `ranks`: all of them.
inline int32_t first_layer(int64_t layers, int ranks, int rank) { return static_cast<int32_t>(layers * rank / ranks); }

struct HeadShare {
  int32_t kv_first = 0, kv_count = 0;  // key/value heads it keeps, at least one
  int32_t first = 0, count = 0;        // heads it attends with; perhaps none
};

// Key/value heads a rank has room for, the same on every rank: page tables are.
inline int32_t kept_kv_heads(int32_t kv_heads, int ranks) { return (kv_heads + ranks - 1) / ranks; }

// Fewer key/value heads than ranks: several ranks keep the same one and part its heads.
inline HeadShare head_share(int32_t heads, int32_t kv_heads, int ranks, int rank) {
  const int64_t n = kv_heads, group = heads / kv_heads;
  auto up = [](int64_t value, int64_t by) { return (value + by - 1) / by; };
  if (n >= ranks) {
    const int64_t begin = up(n * rank, ranks), end = up(n * (rank + 1), ranks);
    return {static_cast<int32_t>(begin), static_cast<int32_t>(end - begin), static_cast<int32_t>(begin * group),
            static_cast<int32_t>((end - begin) * group)};
  }
  const int64_t kv = n * rank / ranks, owner = up(kv * ranks, n), owners = up((kv + 1) * ranks, n) - owner;
  const int64_t begin = group * (rank - owner) / owners, end = group * (rank - owner + 1) / owners;
  return {static_cast<int32_t>(kv), 1, static_cast<int32_t>(kv * group + begin), static_cast<int32_t>(end - begin)};
}

}  // namespace millrace
