#include "grammar/numbers.h"

#include <algorithm>

namespace millrace::grammar {

namespace {

constexpr int kWholeDigits = 24, kFractionDigits = 17, kExponentDigits = 3;

ExprId range_of(Exprs& exprs, int first, int last) {
  if (first > last) return Exprs::kNothing;
  ByteSet set;
  set.add(static_cast<uint8_t>('0' + first), static_cast<uint8_t>('0' + last));
  return exprs.bytes(set);
}
ExprId digits(Exprs& exprs, int least, int most) { return exprs.repeat(range_of(exprs, 0, 9), least, most); }

ExprId fraction(Exprs& exprs) { return exprs.cat(exprs.literal("."), digits(exprs, 1, kFractionDigits)); }

// "." and digits that are not all zero.
ExprId some_fraction(Exprs& exprs) {
  return exprs.cat({exprs.literal("."), digits(exprs, 0, kFractionDigits - 1), range_of(exprs, 1, 9),
                    digits(exprs, 0, kFractionDigits - 1)});
}
ExprId zero_fraction(Exprs& exprs) {
  return exprs.cat(exprs.literal("."), exprs.repeat(range_of(exprs, 0, 0), 1, kFractionDigits));
}

// Fractions ("" or "." and digits) above or below that of `bound`, and equal to it.
ExprId fraction_beyond(Exprs& exprs, const std::string& bound, bool above) {
  std::vector<ExprId> parts;
  const ExprId any = digits(exprs, 0, kFractionDigits);
  if (above && bound.empty()) return some_fraction(exprs);
  if (!above && bound.empty()) return Exprs::kNothing;
  if (!above) parts.push_back(Exprs::kEmpty);
  std::string prefix = ".";
  for (char c : bound) {
    const int digit = c - '0';
    const ExprId other = above ? range_of(exprs, digit + 1, 9) : range_of(exprs, 0, digit - 1);
    parts.push_back(exprs.cat({exprs.literal(prefix), other, any}));
    if (!above && prefix.size() > 1) parts.push_back(exprs.literal(prefix));  // ends early: smaller
    prefix.push_back(c);
  }
  if (above) parts.push_back(exprs.cat({exprs.literal(prefix), any, range_of(exprs, 1, 9), any}));
  return exprs.alt(std::move(parts));
}

ExprId fraction_equal(Exprs& exprs, const std::string& bound) {
  if (bound.empty()) return exprs.maybe(zero_fraction(exprs));
  return exprs.cat(exprs.literal("." + bound), exprs.repeat(range_of(exprs, 0, 0), 0, kFractionDigits));
}

// Numerals without sign above (or below) the bound, or equal to it as well; leading zeros are cut elsewhere.
ExprId beyond(Exprs& exprs, const Decimal& bound, bool above, bool or_equal) {
  const std::string whole = bound.whole.empty() ? "0" : bound.whole;
  const int length = static_cast<int>(whole.size());
  const ExprId rest = exprs.maybe(fraction(exprs));
  std::vector<ExprId> parts;
  if (above) {
    if (length < kWholeDigits) {
      parts.push_back(exprs.cat({range_of(exprs, 1, 9), digits(exprs, length, kWholeDigits - 1), rest}));
    }
  } else if (length > 1) {
    parts.push_back(exprs.cat(digits(exprs, 1, std::min(length - 1, kWholeDigits)), rest));
  }
  for (int i = 0; i < length; ++i) {
    const int digit = whole[static_cast<size_t>(i)] - '0';
    const ExprId other = above ? range_of(exprs, digit + 1, 9) : range_of(exprs, 0, digit - 1);
    parts.push_back(exprs.cat({exprs.literal(whole.substr(0, static_cast<size_t>(i))), other,
                               digits(exprs, length - i - 1, length - i - 1), rest}));
  }
  parts.push_back(exprs.cat(exprs.literal(whole), fraction_beyond(exprs, bound.fraction, above)));
  if (or_equal) parts.push_back(exprs.cat(exprs.literal(whole), fraction_equal(exprs, bound.fraction)));
  return exprs.alt(std::move(parts));
}

// Numerals of one sign within the range.
ExprId side(Exprs& exprs, const NumberRange& range, bool negative) {
  const ExprId whole =
      exprs.alt({exprs.literal("0"), exprs.cat(range_of(exprs, 1, 9), digits(exprs, 0, kWholeDigits - 1))});
  ExprId numeral = exprs.cat(whole, range.whole ? Exprs::kEmpty : exprs.maybe(fraction(exprs)));
  if (range.fractional) numeral = exprs.cat(whole, some_fraction(exprs));
  std::vector<ExprId> parts{numeral};
  const auto bound = [&](const std::optional<Decimal>& limit, bool exclusive, bool is_least) {
    if (!limit) return;
    const bool same_side = limit->zero() || limit->negative == negative;
    if (same_side) {
      parts.push_back(beyond(exprs, *limit, is_least != negative, !exclusive));
    } else if (is_least != negative) {
      // A lower bound below zero says nothing about positive numbers, nor an upper one above it about negative ones.
    } else {
      parts.push_back(Exprs::kNothing);
    }
  };
  bound(range.least, range.above, true);
  bound(range.most, range.below, false);
  return exprs.both(std::move(parts));
}

std::string trimmed_left(std::string text) { return text.substr(std::min(text.find_first_not_of('0'), text.size())); }
std::string trimmed_right(std::string text) {
  while (!text.empty() && text.back() == '0') text.pop_back();
  return text;
}

std::optional<Decimal> parse_decimal(std::string_view text) {
  Decimal value;
  size_t at = 0;
  if (at < text.size() && text[at] == '-') value.negative = true, ++at;
  std::string all;
  int64_t point = -1, exponent = 0;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      point = static_cast<int64_t>(all.size());
    } else {
      all.push_back(text[at]);
    }
  }
  if (point < 0) point = static_cast<int64_t>(all.size());
  if (at < text.size()) exponent = std::atoi(std::string(text.substr(at + 1)).c_str());
  point += exponent;
  if (point < -400 || point > 400) return std::nullopt;
  if (point < 0) all.insert(0, static_cast<size_t>(-point), '0'), point = 0;
  if (point > static_cast<int64_t>(all.size())) all.append(static_cast<size_t>(point) - all.size(), '0');
  value.whole = trimmed_left(all.substr(0, static_cast<size_t>(point)));
  value.fraction = trimmed_right(all.substr(static_cast<size_t>(point)));
  if (value.zero()) value.negative = false;
  return value;
}

// step = units / 10^places as small numbers; none if it does not fit.
bool scaled(const Decimal& step, uint64_t& units, int& places) {
  const std::string text = trimmed_left(step.whole + step.fraction);
  if (text.empty() || text.size() > 18) return false;
  units = std::stoull(text);
  places = static_cast<int>(step.fraction.size());
  return true;
}

}  // namespace

std::optional<Decimal> to_decimal(const Json& number) {
  if (number.is_int64()) return parse_decimal(fmt::format("{}", number.get_int64()));
  if (number.is_uint64()) return parse_decimal(fmt::format("{}", number.get_uint64()));
  if (number.is_double()) return parse_decimal(fmt::format("{}", number.get_double()));
  return std::nullopt;
}

std::string to_text(const Decimal& value) {
  return fmt::format("{}{}{}{}", value.negative ? "-" : "", value.whole.empty() ? "0" : value.whole,
                     value.fraction.empty() ? "" : ".", value.fraction);
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int order = 0;
  if (a.whole.size() != b.whole.size()) {
    order = a.whole.size() < b.whole.size() ? -1 : 1;
  } else {
    order = a.whole.compare(b.whole);
    if (order == 0) order = a.fraction.compare(b.fraction);
  }
  return a.negative ? -order : order;
}

bool is_multiple(const Decimal& value, const Decimal& step) {
  uint64_t units = 0;
  int places = 0;
  if (!scaled(step, units, places)) return compare(value, step) == 0 || value.zero();
  if (value.fraction.size() > static_cast<size_t>(places)) return false;
  std::string text = value.whole + value.fraction;
  text.append(static_cast<size_t>(places) - value.fraction.size(), '0');
  uint64_t rest = 0;
  for (char c : text) rest = (rest * 10 + static_cast<unsigned>(c - '0')) % units;
  return rest == 0;
}

void NumberRange::at_least(const Decimal& bound, bool exclusive) {
  const int order = least ? compare(bound, *least) : 1;
  if (order > 0) above = exclusive;
  if (order >= 0) least = bound, above = above || exclusive;
}

void NumberRange::at_most(const Decimal& bound, bool exclusive) {
  const int order = most ? compare(bound, *most) : -1;
  if (order < 0) below = exclusive;
  if (order <= 0) most = bound, below = below || exclusive;
}

ExprId equal_expr(Exprs& exprs, const Decimal& value) {
  const ExprId sign = value.zero() ? exprs.maybe(exprs.literal("-")) : exprs.literal(value.negative ? "-" : "");
  return exprs.cat(
      {sign, exprs.literal(value.whole.empty() ? "0" : value.whole), fraction_equal(exprs, value.fraction)});
}

Result<ExprId> number_expr(Exprs& exprs, const NumberRange& range) {
  std::vector<ExprId> parts;
  ExprId numeral = exprs.alt({side(exprs, range, false), exprs.cat(exprs.literal("-"), side(exprs, range, true))});
  if (!range.bounded() && !range.whole) {
    ByteSet e, sign;
    e.add('e'), e.add('E');
    sign.add('+'), sign.add('-');
    const ExprId exponent =
        exprs.cat({exprs.bytes(e), exprs.maybe(exprs.bytes(sign)), digits(exprs, 1, kExponentDigits)});
    return exprs.cat(numeral, exprs.maybe(exponent));
  }
  parts.push_back(numeral);
  for (const auto* steps : {&range.steps, &range.no_steps}) {
    for (const Decimal& step : *steps) {
      uint64_t units = 0;
      int places = 0;
      if (!scaled(step, units, places)) {
        return error(Code::unsupported, "multipleOf {} has more than 18 digits", to_text(step));
      }
      const ExprId multiple = exprs.multiple(units, places);
      parts.push_back(steps == &range.steps ? multiple : exprs.negate(multiple));
    }
  }
  for (const Decimal& value : range.without) parts.push_back(exprs.negate(equal_expr(exprs, value)));
  return exprs.both(std::move(parts));
}

}  // namespace millrace::grammar
