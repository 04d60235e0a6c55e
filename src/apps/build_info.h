// What this binary was built from and with. Constants, filled in by CMake (build_info.cpp.in).
#pragma once

#include <string_view>

namespace millrace::apps {

struct BuildInfo {
  std::string_view version;     // "0.1.0"
  std::string_view commit;      // short hash, with "+" if the tree had changes; "unknown" outside a checkout
  std::string_view compiler;    // "GNU 12.2.0"
  std::string_view build_type;  // "Release"
  std::string_view target;      // "aarch64"
  std::string_view sanitizers;  // as given to -fsanitize=, empty if none
  bool text;                    // tokenizers and templates
  bool cuda;
};

extern const BuildInfo kBuildInfo;

}  // namespace millrace::apps
