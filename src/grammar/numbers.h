// Numbers of JSON as expressions over their text: ranges, whole numbers, multiples, values left out. Bounds are exact
// decimals, never rounded.
//
// What is produced is a choice, written down in docs/structured.md: at most 24 digits before the point, 17 after it and
// 3 of an exponent; no exponent where a number is bounded in any way; no fraction for an integer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/expr.h"

namespace millrace::grammar {

struct Decimal {
  bool negative = false;
  std::string whole;     // without leading zeros; empty for zero
  std::string fraction;  // without trailing zeros

  bool zero() const { return whole.empty() && fraction.empty(); }
  bool operator==(const Decimal& other) const = default;
};

std::optional<Decimal> to_decimal(const Json& number);  // none for what is no number, or is over 400 digits
int compare(const Decimal& a, const Decimal& b);        // negative, zero or positive
std::string to_text(const Decimal& value);
bool is_multiple(const Decimal& value, const Decimal& step);  // step is positive

struct NumberRange {
  bool whole = false;       // integers only
  bool fractional = false;  // no integers
  std::optional<Decimal> least, most;
  bool above = false, below = false;  // the bounds themselves are left out
  std::vector<Decimal> steps;         // a multiple of each
  std::vector<Decimal> no_steps;      // a multiple of none
  std::vector<Decimal> without;

  void at_least(const Decimal& bound, bool exclusive);
  void at_most(const Decimal& bound, bool exclusive);
  bool bounded() const {
    return least || most || !steps.empty() || !no_steps.empty() || !without.empty() || fractional;
  }
};

Result<ExprId> number_expr(Exprs& exprs, const NumberRange& range);
// Texts that are this number.
ExprId equal_expr(Exprs& exprs, const Decimal& value);

}  // namespace millrace::grammar
