#include "text/charsmap.h"

#include <algorithm>
#include <cstring>

#include "text/pattern.h"
#include "text/unicode.h"

namespace millrace {
namespace {

constexpr size_t kLongestForGrapheme = 5;
constexpr size_t kLongestRule = 256;  // bytes it replaces; a broken trie may go round

bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t label(uint32_t unit) { return unit & (0x80000000u | 0xFF); }
uint32_t value(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

Result<Charsmap> Charsmap::from_base64(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (char c : text) {
    int digit = base64_digit(c);
    if (digit < 0) return error(Code::corrupt, "the precompiled_charsmap is not base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes.push_back(static_cast<char>(bits >> held));
    }
  }
  return from_bytes(bytes);
}

Result<Charsmap> Charsmap::from_bytes(std::string_view bytes) {
  Charsmap map;
  if (bytes.empty()) return map;
  uint32_t trie_bytes = 0;
  if (bytes.size() >= 4) std::memcpy(&trie_bytes, bytes.data(), 4);
  if (bytes.size() < 4 || trie_bytes > bytes.size() - 4) {
    return error(Code::corrupt, "the precompiled_charsmap says its trie has {} bytes, but there are {}", trie_bytes,
                 bytes.size());
  }
  map.units_.resize(trie_bytes / 4);
  if (!map.units_.empty()) std::memcpy(map.units_.data(), bytes.data() + 4, map.units_.size() * 4);
  map.replacements_ = bytes.substr(4 + trie_bytes / 4 * 4);
  if (!is_valid_utf8(map.replacements_))
    return error(Code::corrupt, "the precompiled_charsmap holds text that is not UTF-8");
  map.growth_ = map.find_growth();
  if (map.growth() > kMostGrowth)
    return error(Code::invalid, "the precompiled_charsmap could make a text {:.0f} times as long; {:.0f} is the most",
                 map.growth(), kMostGrowth);
  return map;
}

template <class Found>
void Charsmap::rules(std::string_view text, Found&& found) const {
  if (units_.empty()) return;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < std::min(text.size(), kLongestRule); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) return;
    node ^= byte;
    if (node >= units_.size() || label(units_[node]) != byte) return;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (node >= units_.size()) return;
    if (has_leaf(unit) && !found(i + 1, value(units_[node]))) return;
  }
}

std::string_view Charsmap::replacement(uint32_t offset_in_text) const {
  if (offset_in_text >= replacements_.size()) return {};
  // An offset into the middle of a character could only come from a broken file.
  if (!is_char_start(replacements_[offset_in_text])) return {};
  return {replacements_.data() + offset_in_text, std::strlen(replacements_.data() + offset_in_text)};
}

std::string_view Charsmap::longest(std::string_view text, size_t* covered) const {
  uint32_t best = 0;
  *covered = 0;
  rules(text, [&](size_t bytes, uint32_t at) { return *covered = bytes, best = at, true; });
  return *covered == 0 ? std::string_view() : replacement(best);
}

bool Charsmap::replace_shortest(std::string_view text, std::string& out) const {
  bool replaced = false;
  rules(text, [&](size_t, uint32_t at) { return out += replacement(at), replaced = true, false; });
  return replaced;
}

// By the rule that replaces least by most. Of a unit it counts in how few bytes it can be reached, so that a broken
// trie, whose paths meet or go round, costs no more than a sound one.
double Charsmap::find_growth() const {
  double most = 1;
  if (units_.empty()) return most;
  std::vector<bool> seen(units_.size());
  std::vector<size_t> level = {offset(units_[0])}, next;
  for (size_t bytes = 1; bytes <= kLongestRule && !level.empty(); ++bytes, level.swap(next), next.clear()) {
    for (size_t node : level) {
      for (uint32_t byte = 1; byte < 256; ++byte) {
        const size_t at = node ^ byte;
        if (at >= units_.size() || seen[at] || label(units_[at]) != byte) continue;
        seen[at] = true;
        const size_t to = at ^ offset(units_[at]);
        if (to >= units_.size()) continue;
        next.push_back(to);
        if (!has_leaf(units_[at])) continue;
        const size_t with = replacement(value(units_[to])).size();
        most = std::max(most, static_cast<double>(with) / static_cast<double>(bytes));
        if (most > kMostGrowth) return most;
      }
    }
  }
  return most;
}

std::string Charsmap::by_grapheme(std::string_view text, size_t most) const {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size() && out.size() <= most;) {
    std::string_view cluster = text.substr(at, grapheme_bytes(text.substr(at)));
    at += cluster.size();
    if (cluster.size() <= kLongestForGrapheme && replace_shortest(cluster, out)) continue;
    for (size_t i = 0; i < cluster.size() && out.size() <= most;) {
      std::string_view character = cluster.substr(i, char_bytes(cluster[i]));
      if (!replace_shortest(character, out)) out += character;
      i += character.size();
    }
  }
  return out;
}

}  // namespace millrace
