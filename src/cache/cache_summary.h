// What was saved of a prefix cache, restored or forgotten (cache_file.h). A value.
#pragma once

#include <cstdint>

namespace millrace {

struct CacheFileSummary {
  int64_t nodes = 0, tokens = 0, pages = 0, bytes = 0;
};

}  // namespace millrace
