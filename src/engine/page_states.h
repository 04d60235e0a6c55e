// What every page of the pool is there for right now, for people who want to watch. Integers only; engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/kv_cache.h"

namespace millrace {

enum class PageState : uint8_t {
  free,
  used,    // by one sequence
  shared,  // by several
  cached,  // by none: kept for a prompt that starts the same
};

// One per page. Takes time in proportion to the pool and the tree.
std::vector<PageState> page_states(const KvCache& cache);

}  // namespace millrace
