// FlatMap: 64-bit keys to 32-bit values, open addressing, grows only. For the hot tables of automata, where a node per
// entry would cost more than the entry. Not for several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace millrace::grammar {

class FlatMap {
 public:
  FlatMap() : slots_(64, Slot{kFree, 0}) {}

  // -1 if the key is not there. Keys are below 2^64 - 1.
  int32_t find(uint64_t key) const {
    for (size_t at = place(key);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return slots_[at].value;
      if (slots_[at].key == kFree) return -1;
    }
  }

  void put(uint64_t key, int32_t value) {
    if (used_ * 2 >= slots_.size()) grow();
    insert(key, value);
  }

  size_t size() const { return used_; }
  size_t bytes() const { return slots_.size() * sizeof(Slot); }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key;
    int32_t value;
  };
  size_t place(uint64_t key) const {
    key ^= key >> 32;
    key *= 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>(key >> 20) & (slots_.size() - 1);
  }
  void insert(uint64_t key, int32_t value) {
    size_t at = place(key);
    while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    if (slots_[at].key == kFree) ++used_;
    slots_[at] = {key, value};
  }
  void grow() {
    std::vector<Slot> old = std::move(slots_);
    slots_.assign(old.size() * 2, Slot{kFree, 0});
    used_ = 0;
    for (const Slot& slot : old) {
      if (slot.key != kFree) insert(slot.key, slot.value);
    }
  }
  std::vector<Slot> slots_;
  size_t used_ = 0;
};

}  // namespace millrace::grammar
