// CHECK: for our own mistakes. It ends the process with the place and the reason, so nothing a file, a prompt or a
// client sends may ever reach one; those are Results.
#pragma once

#include <fmt/format.h>

#include <string>

namespace millrace {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

#define CHECK(condition, ...)                                                                           \
  do {                                                                                                  \
    if (!(condition)) [[unlikely]]                                                                      \
      ::millrace::check_failed(__FILE__, __LINE__, #condition, ::millrace::check_message(__VA_ARGS__)); \
  } while (0)

inline std::string check_message() { return {}; }
template <class... Args>
std::string check_message(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}

}  // namespace millrace
