#include "base/cache_folder.h"

#include <cstdlib>

namespace millrace {

std::filesystem::path cache_folder() {
  namespace fs = std::filesystem;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const fs::path root = cache != nullptr && *cache != '\0' ? fs::path(cache)
                        : home != nullptr                  ? fs::path(home) / ".cache"
                                                           : fs::temp_directory_path();
  return root / "millrace";
}

}  // namespace millrace
