#include "grammar/code_points.h"

#include <algorithm>

namespace millrace::grammar {

namespace {

constexpr uint32_t kLast = 0x10FFFF;

int encode(uint32_t c, uint8_t* out) {
  if (c < 0x80) return out[0] = static_cast<uint8_t>(c), 1;
  if (c < 0x800) {
    out[0] = static_cast<uint8_t>(0xC0 | c >> 6);
    out[1] = static_cast<uint8_t>(0x80 | (c & 63));
    return 2;
  }
  if (c < 0x10000) {
    out[0] = static_cast<uint8_t>(0xE0 | c >> 12);
    out[1] = static_cast<uint8_t>(0x80 | (c >> 6 & 63));
    out[2] = static_cast<uint8_t>(0x80 | (c & 63));
    return 3;
  }
  out[0] = static_cast<uint8_t>(0xF0 | c >> 18);
  out[1] = static_cast<uint8_t>(0x80 | (c >> 12 & 63));
  out[2] = static_cast<uint8_t>(0x80 | (c >> 6 & 63));
  out[3] = static_cast<uint8_t>(0x80 | (c & 63));
  return 4;
}

ExprId byte_range(Exprs& exprs, uint8_t first, uint8_t last) {
  ByteSet set;
  set.add(first, last);
  return exprs.bytes(set);
}

// Code points first..last of one encoded length: split where a lower byte does not run its whole range.
void add_sequences(Exprs& exprs, uint32_t first, uint32_t last, std::vector<ExprId>& out) {
  for (int shift = 6; shift <= 18; shift += 6) {
    const uint32_t mask = (uint32_t{1} << shift) - 1;
    if ((first & ~mask) == (last & ~mask)) break;
    if ((first & mask) != 0) {
      add_sequences(exprs, first, first | mask, out);
      return add_sequences(exprs, (first | mask) + 1, last, out);
    }
    if ((last & mask) != mask) {
      add_sequences(exprs, first, (last & ~mask) - 1, out);
      return add_sequences(exprs, last & ~mask, last, out);
    }
  }
  uint8_t low[4], high[4];
  const int length = encode(first, low);
  encode(last, high);
  ExprId tail = Exprs::kEmpty;
  for (int i = length; i-- > 0;) tail = exprs.cat(byte_range(exprs, low[i], high[i]), tail);
  out.push_back(tail);
}

}  // namespace

void append_utf8(std::string& out, uint32_t code_point) {
  uint8_t bytes[4];
  const int length = encode(code_point, bytes);
  for (int i = 0; i < length; ++i) out.push_back(static_cast<char>(bytes[i]));
}

CodePoints all_code_points() {
  CodePoints all;
  all.add(0, 0xD7FF);
  all.add(0xE000, kLast);
  return all;
}

void CodePoints::tidy() {
  std::vector<std::pair<uint32_t, uint32_t>> cut;
  for (auto [first, last] : ranges) {
    last = std::min(last, kLast);
    if (first > last) continue;
    if (last < 0xD800 || first > 0xDFFF) {
      cut.push_back({first, last});
      continue;
    }
    if (first < 0xD800) cut.push_back({first, 0xD7FF});
    if (last > 0xDFFF) cut.push_back({0xE000, last});
  }
  std::sort(cut.begin(), cut.end());
  ranges.clear();
  for (auto [first, last] : cut) {
    if (!ranges.empty() && first <= ranges.back().second + 1) {
      ranges.back().second = std::max(ranges.back().second, last);
    } else {
      ranges.push_back({first, last});
    }
  }
}

CodePoints CodePoints::others() const {
  CodePoints own = *this, result;
  own.tidy();
  uint32_t next = 0;
  for (auto [first, last] : own.ranges) {
    if (first > next) result.add(next, first - 1);
    next = last + 1;
  }
  if (next <= kLast) result.add(next, kLast);
  result.tidy();
  return result;
}

ExprId utf8_expr(Exprs& exprs, CodePoints set) {
  set.tidy();
  constexpr uint32_t kLengthEnds[] = {0x7F, 0x7FF, 0xFFFF, kLast};
  std::vector<ExprId> parts;
  for (auto [first, last] : set.ranges) {
    for (uint32_t end : kLengthEnds) {
      if (first > end) continue;
      add_sequences(exprs, first, std::min(last, end), parts);
      first = end + 1;
      if (first > last) break;
    }
  }
  return exprs.alt(std::move(parts));
}

}  // namespace millrace::grammar
