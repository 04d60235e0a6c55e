// Hand-written matchers for the regular expressions that most models split text with before anything else: the same
// pieces as the expression gives (tests compare them), several times faster, in linear time on any text. No state; any
// thread.
#pragma once

#include <string_view>

#include "text/regex.h"

namespace millrace {

// The leftmost match at or after `from`. The text is valid UTF-8 and `from` is the start of a character.
using Scanner = Span (*)(std::string_view text, size_t from);

// The matcher for exactly this expression, null if there is none.
Scanner find_scanner(std::string_view pattern);

// The expressions there are matchers for, by name (the names are ours).
struct KnownPattern {
  std::string_view name;
  std::string_view pattern;
  Scanner scanner;
};
const KnownPattern* known_patterns(size_t* count);
std::string_view known_pattern(std::string_view name);

}  // namespace millrace
