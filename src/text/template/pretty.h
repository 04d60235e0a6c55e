// Layout of long texts: Python's pprint.pformat and textwrap.wrap.
#pragma once

#include "text/template/run.h"

namespace millrace::jinja {

Result<std::string> pretty_repr(Run& run, const Value& value);

struct WrapOptions {
  int64_t width = 79;
  bool break_long_words = true;
  bool break_on_hyphens = true;
};
// One paragraph's lines.
Result<std::vector<std::string>> wrap_text(Run& run, std::string_view text, const WrapOptions& options);

}  // namespace millrace::jinja
