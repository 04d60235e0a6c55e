// A regular expression, a zero byte, and a text: it compiles or is refused, and a search ends.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/pattern.h"
#include "text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  if (end == input.npos || end > 512 || size > 4096) return 0;
  auto pattern = Pattern::regex(input.substr(0, end));
  if (!pattern.ok()) return 0;
  std::string text;
  append_valid_utf8(text, input.substr(end + 1));
  RegexScratch scratch;
  std::string joined;
  for (Split how : {Split::isolated, Split::contiguous, Split::merged_with_previous, Split::merged_with_next}) {
    joined.clear();
    split(text, *pattern, how, false, scratch, [&](size_t from, size_t to) { joined += text.substr(from, to - from); });
    if (joined != text) std::abort();
  }
  return 0;
}
