#include "base/result.h"

#include <cstdio>
#include <cstdlib>

namespace millrace {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::invalid:
      return "invalid";
    case Code::not_found:
      return "not found";
    case Code::unsupported:
      return "unsupported";
    case Code::corrupt:
      return "corrupt";
    case Code::no_memory:
      return "no memory";
    case Code::overloaded:
      return "overloaded";
    case Code::cancelled:
      return "cancelled";
    case Code::io:
      return "io";
    case Code::internal:
      return "internal";
  }
  return "unknown";
}

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "millrace: internal error at %s:%d: %s%s%s\n", file, line, condition,
               message.empty() ? "" : ": ", message.c_str());
  std::abort();
}

}  // namespace millrace
