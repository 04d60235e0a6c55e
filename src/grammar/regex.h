// Regular expressions as JSON Schema and clients write them (ECMA-262 with the unicode flag, and what Python's dialect
// adds to it that means the same) into expressions over UTF-8. Looking ahead is an intersection; looking behind, word
// boundaries and references back are refused by name, since they are no plain regular language here.
//
// Limits: 8 kB of text, 100,000 for one counted repetition, 1,000,000 for nested ones together.
#pragma once

#include <string_view>

#include "base/result.h"
#include "grammar/code_points.h"
#include "grammar/expr.h"

namespace millrace::grammar {

// A byte that no UTF-8 text has. Contents of strings end with it in every expression, so that `$` has a place.
inline constexpr uint8_t kTextEnd = 0xFF;

enum class RegexUse : uint8_t {
  search,    // anywhere in the text, as `pattern` means; the expression ends with kTextEnd
  whole,     // the whole text; the expression ends with kTextEnd
  terminal,  // the whole of a lexeme, no end byte; anchors and looking ahead are refused
};

struct RegexFlags {
  bool ignore_case = false;  // letters of ASCII
  bool dot_all = false;      // `.` matches line ends too
};

Result<ExprId> regex_expr(Exprs& exprs, std::string_view pattern, RegexUse use, RegexFlags flags = {});

ExprId any_character(Exprs& exprs);  // one code point in UTF-8
ExprId text_end(Exprs& exprs);       // kTextEnd itself
ExprId any_text(Exprs& exprs);       // any characters and kTextEnd
// least..most characters (most may be Exprs::kMany) and kTextEnd.
ExprId text_of_length(Exprs& exprs, int least, int most);

}  // namespace millrace::grammar
