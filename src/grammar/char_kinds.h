// Kinds of characters, coarse: letters, digits and so on. Where a language goes on whatever characters of some kinds
// come, every text of those kinds is allowed without a look at each of its bytes. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "grammar/expr.h"

namespace millrace::grammar {

enum CharKind : uint8_t {
  kLower = 1,
  kDigit = 2,
  kUpper = 4,
  kMark = 8,    // ASCII that is printed and none of the others; no quote, no backslash
  kBlank = 16,  // a space
  kWide = 32,   // past ASCII; no control and no kind of space
  kOdd = 64,    // anything else, half a character, and what comes before 32 more characters
};

// For each place in a text, and its end: the kinds of the characters from there on.
void suffix_kinds(std::string_view text, std::vector<uint8_t>& out);
// One character of these kinds; kOdd must not be among them.
ExprId kinds_expr(Exprs& exprs, uint8_t kinds);

}  // namespace millrace::grammar
