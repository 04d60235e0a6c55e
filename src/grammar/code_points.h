// CodePoints: a set of Unicode code points, and the expression of its members in UTF-8. Surrogates are no code points
// here: they cannot be written in UTF-8. Values, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "grammar/expr.h"

namespace millrace::grammar {

struct CodePoints {
  std::vector<std::pair<uint32_t, uint32_t>> ranges;  // first and last of each; any order until tidy()

  void add(uint32_t first, uint32_t last) { ranges.push_back({first, last}); }
  void add(const CodePoints& other) { ranges.insert(ranges.end(), other.ranges.begin(), other.ranges.end()); }
  void tidy();                // sorted, joined, without surrogates
  CodePoints others() const;  // every other code point
};

CodePoints all_code_points();
ExprId utf8_expr(Exprs& exprs, CodePoints set);
void append_utf8(std::string& out, uint32_t code_point);

}  // namespace millrace::grammar
