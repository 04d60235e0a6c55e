// What became of the prefix tree, for whoever keeps an index of it elsewhere: which stretches of tokens can be had
// without computing them, in the order it happened. A parent is stored before its children and removed after them.
// Values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/token.h"

namespace millrace {

struct CacheChange {
  enum class Kind : uint8_t { stored, removed, cleared };
  Kind kind = Kind::stored;
  bool away = false;    // in the second store, or from it
  uint64_t node = 0;    // the beginning of its chain's digest: of the root's key and all tokens up to its end
  uint64_t parent = 0;  // if stored: of the node before it; 0: it is the first
  std::vector<Token> tokens = {};  // if stored
};

}  // namespace millrace
