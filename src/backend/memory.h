// Memory: what a backend on the host holds, by purpose, under one limit; and Arena, the workspace of one Ops. Taken
// while loading, from one thread; released together with the backend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "tensor/tensor.h"

namespace millrace {

inline constexpr int64_t kAlignment = 64;  // of allocations and of the rows of activations: a cache line
// A backend may keep the input of a product in a form of its own, in at most the room of a float32 matrix whose rows
// are rounded up to kRowPadding and whose columns are longer by kColumnPadding. Trace plans for it, backends keep to
// it.
inline constexpr int64_t kRowPadding = 16, kColumnPadding = 64;
inline int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Rows of all pairs if each expert's are rounded up to kRowPadding: room of products of experts, as above.
inline int64_t padded_pairs(const Routing& routing) {
  const int64_t most = routing.experts < routing.pairs() ? routing.experts : routing.pairs();
  return routing.pairs() + most * (kRowPadding - 1);
}

class Memory {
 public:
  Memory() = default;
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Counts bytes that lie elsewhere (a mapped file used in place), or refuses.
  Result<void> charge(Purpose purpose, int64_t bytes);
  // Zeroed, 64-byte aligned, counted.
  Result<std::byte*> take(Purpose purpose, int64_t bytes);
  int64_t used(Purpose purpose) const { return used_[static_cast<size_t>(purpose)]; }
  int64_t used() const;
  void set_limit(int64_t bytes) { limit_ = bytes; }

 private:
  struct Region {
    void* address;
    size_t bytes;
  };
  Result<std::byte*> map(int64_t bytes);

  std::array<int64_t, kPurposes> used_{};
  int64_t limit_ = INT64_MAX;
  std::vector<Region> regions_;
  std::byte* shared_ = nullptr;  // what is left of a region that small pieces share
  int64_t shared_left_ = 0;
};

// A stack of activations from below, and what lives until the next step from above. Rows start on cache lines.
class Arena {
 public:
  Arena() = default;
  Arena(std::byte* base, int64_t bytes) : base_(base), bytes_(bytes), ceiling_(bytes) {}

  void begin_step() { top_ = 0, ceiling_ = bytes_; }
  Tensor rows(int64_t rows, int64_t cols);
  std::byte* bytes(int64_t bytes);
  std::byte* until_next_step(int64_t bytes);
  int64_t mark() const { return top_; }
  void restore(int64_t mark) { top_ = mark; }

 private:
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0, top_ = 0, ceiling_ = 0;
};

}  // namespace millrace
