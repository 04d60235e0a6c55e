// The normal forms. utf8proc knows decompositions and compositions; the order of combining marks is made here, because
// a long run of marks must not take quadratic time, and characters newer than Unicode 9 are kept out of it all.
#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "text/unicode.h"

namespace millrace {
namespace {

struct Range {
  uint32_t first, last;
};

// Characters with a decomposition, a combining class or category M that came after Unicode 9.
constexpr Range kNewer[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xAFA, 0xAFF},
    {0xB55, 0xB55},     {0xC04, 0xC04},     {0xC3C, 0xC3C},     {0xCF3, 0xCF3},     {0xD00, 0xD00},
    {0xD3B, 0xD3C},     {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x1715, 0x1715},
    {0x180F, 0x180F},   {0x1ABF, 0x1ADD},   {0x1AE0, 0x1AEB},   {0x1CF7, 0x1CF7},   {0x1DF6, 0x1DFA},
    {0x32FF, 0x32FF},   {0xA7F1, 0xA7F4},   {0xA82C, 0xA82C},   {0xA8FF, 0xA8FF},   {0xAB69, 0xAB69},
    {0x105C9, 0x105C9}, {0x105E4, 0x105E4}, {0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
    {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFA, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110C2, 0x110C2}, {0x11145, 0x11146},
    {0x111C9, 0x111C9}, {0x111CE, 0x111CF}, {0x11241, 0x11241}, {0x1133B, 0x1133B}, {0x11383, 0x11383},
    {0x11385, 0x11385}, {0x1138E, 0x1138E}, {0x11391, 0x11391}, {0x113B8, 0x113C0}, {0x113C2, 0x113C2},
    {0x113C5, 0x113C5}, {0x113C7, 0x113CA}, {0x113CC, 0x113D0}, {0x113D2, 0x113D2}, {0x113E1, 0x113E2},
    {0x1145E, 0x1145E}, {0x1182C, 0x1183A}, {0x11930, 0x11935}, {0x11937, 0x11938}, {0x1193B, 0x1193E},
    {0x11940, 0x11940}, {0x11942, 0x11943}, {0x119D1, 0x119D7}, {0x119DA, 0x119E0}, {0x119E4, 0x119E4},
    {0x11A01, 0x11A0A}, {0x11A33, 0x11A39}, {0x11A3B, 0x11A3E}, {0x11A47, 0x11A47}, {0x11A51, 0x11A5B},
    {0x11A8A, 0x11A99}, {0x11B60, 0x11B67}, {0x11D31, 0x11D36}, {0x11D3A, 0x11D3A}, {0x11D3C, 0x11D3D},
    {0x11D3F, 0x11D45}, {0x11D47, 0x11D47}, {0x11D8A, 0x11D8E}, {0x11D90, 0x11D91}, {0x11D93, 0x11D97},
    {0x11EF3, 0x11EF6}, {0x11F00, 0x11F01}, {0x11F03, 0x11F03}, {0x11F34, 0x11F3A}, {0x11F3E, 0x11F42},
    {0x11F5A, 0x11F5A}, {0x13440, 0x13440}, {0x13447, 0x13455}, {0x1611E, 0x1612F}, {0x16D68, 0x16D6A},
    {0x16F4F, 0x16F4F}, {0x16F7F, 0x16F87}, {0x16FE4, 0x16FE4}, {0x16FF0, 0x16FF1}, {0x1CCD6, 0x1CCF9},
    {0x1CF00, 0x1CF2D}, {0x1CF30, 0x1CF46}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1E6E3, 0x1E6E3},
    {0x1E6E6, 0x1E6E6}, {0x1E6EE, 0x1E6EF}, {0x1E6F5, 0x1E6F5}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

// Stretches whose characters NFC leaves as they are whatever stands around them; most text is made of these.
constexpr Range kInert[] = {
    {0x0, 0x2FF},     {0x370, 0x373},   {0x388, 0x482},   {0x48A, 0x590},   {0x5D0, 0x60F},     {0x620, 0x64A},
    {0x660, 0x66F},   {0x671, 0x6D5},   {0x904, 0x939},   {0xE01, 0xE37},   {0xE3F, 0xE47},     {0x10A0, 0x10FF},
    {0x1E00, 0x1EFF}, {0x2010, 0x20CF}, {0x2190, 0x2328}, {0x2500, 0x2ADB}, {0x3001, 0x3029},   {0x3041, 0x3096},
    {0x309B, 0x4DBF}, {0x4E00, 0x9FFF}, {0xAC00, 0xD7A3}, {0xFF00, 0xFFFD}, {0x1F000, 0x1FAFF}, {0x20000, 0x2A6DF},
};

template <size_t N>
bool among(const Range (&ranges)[N], uint32_t code) {
  const Range* after = std::upper_bound(ranges, ranges + N, code,
                                        [](uint32_t value, const Range& range) { return value < range.first; });
  return after != ranges && code <= after[-1].last;
}

bool is_newer(uint32_t code) { return code >= kNewer[0].first && among(kNewer, code); }

int combining_class(uint32_t code) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
}

class Normalizing {
 public:
  Normalizing(NormalForm form, size_t most)
      : most_(most),
        compose_(form == NormalForm::nfc || form == NormalForm::nfkc),
        compatibility_(form == NormalForm::nfkc || form == NormalForm::nfkd) {}

  // The characters of a stretch that begins and ends where nothing reorders or composes across.
  void append(std::string& out, std::string_view text) {
    size_t bytes = 0;
    for (size_t at = 0; at < text.size() && out.size() <= most_; at += bytes) {
      uint32_t code = code_at(text.data() + at, &bytes);
      if (is_newer(code)) {
        flush(out);
        append_utf8(out, code);
      } else {
        decompose(out, code);
      }
    }
    flush(out);
  }

 private:
  void decompose(std::string& out, uint32_t code) {
    constexpr int kLongest = 18;    // U+FDFA
    constexpr size_t kHeld = 4096;  // from then on they are written out wherever that changes nothing
    const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatibility_ ? UTF8PROC_COMPAT : 0);
    utf8proc_int32_t parts[kLongest];
    int boundary = 0;
    auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, kLongest,
                                         static_cast<utf8proc_option_t>(options), &boundary);
    const bool kept = count < 0 || count > kLongest;
    if (codes_.size() >= kHeld && among(kInert, kept || count == 0 ? code : static_cast<uint32_t>(parts[0])))
      flush(out);
    if (kept) {
      codes_.push_back(static_cast<utf8proc_int32_t>(code));
    } else {
      codes_.insert(codes_.end(), parts, parts + count);
    }
  }

  void flush(std::string& out) {
    for (size_t first = 0; first < codes_.size(); ++first) {
      if (combining_class(static_cast<uint32_t>(codes_[first])) == 0) continue;
      size_t last = first;
      while (last < codes_.size() && combining_class(static_cast<uint32_t>(codes_[last])) != 0) ++last;
      std::stable_sort(codes_.begin() + static_cast<ptrdiff_t>(first), codes_.begin() + static_cast<ptrdiff_t>(last),
                       [](auto a, auto b) {
                         return combining_class(static_cast<uint32_t>(a)) < combining_class(static_cast<uint32_t>(b));
                       });
      first = last;
    }
    auto count = static_cast<utf8proc_ssize_t>(codes_.size());
    if (compose_ && count > 0) {
      count = utf8proc_normalize_utf32(codes_.data(), count,
                                       static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      append_utf8(out, static_cast<uint32_t>(codes_[static_cast<size_t>(i)]));
    codes_.clear();
  }

  size_t most_;
  bool compose_, compatibility_;
  std::vector<utf8proc_int32_t> codes_;
};

// NFC: copies what is inert; where a character is not, normalises from the one before it to the next inert one.
std::string normalize_nfc(std::string_view text, size_t most) {
  Normalizing normalizing(NormalForm::nfc, most);
  std::string out;
  size_t copied = 0, previous = 0, bytes = 0;
  for (size_t at = 0; at < text.size() && out.size() <= most;) {
    if (static_cast<unsigned char>(text[at]) < 0x80 || among(kInert, code_at(text.data() + at, &bytes))) {
      previous = at;
      at += char_bytes(text[at]);
      continue;
    }
    size_t start = std::max(previous, copied), end = at;
    while (end < text.size() && !among(kInert, code_at(text.data() + end, &bytes))) end += bytes;
    out.append(text, copied, start - copied);
    normalizing.append(out, text.substr(start, end - start));
    copied = at = previous = end;
  }
  if (copied == 0) return std::string(text);
  return out.append(text, copied);
}

}  // namespace

std::string normalize(std::string_view text, NormalForm form, size_t most) {
  if (form == NormalForm::nfc) return normalize_nfc(text, most);
  std::string out;
  out.reserve(text.size());
  Normalizing normalizing(form, most);
  size_t at = 0;
  while (at < text.size() && out.size() <= most) {
    // ASCII decomposes to itself and stops every reordering, so stretches may be cut in front of it (and only there, as
    // an ASCII letter may compose with what follows).
    size_t end = at + 1;
    while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) ++end;
    if (end - at == 1) {
      out.push_back(text[at]);
    } else {
      normalizing.append(out, text.substr(at, end - at));
    }
    at = end;
  }
  return out;
}

bool is_combining_mark(uint32_t code) {
  // U+1CF2 and U+1CF3 were marks until Unicode 12.
  if (code == 0x1CF2 || code == 0x1CF3) return true;
  return code >= 0x300 && CategoryTable::get().in(code, kMark) && !is_newer(code);
}

std::string lowercase(std::string_view text) {
  struct Pair {
    uint32_t first, last, lower;
  };
  // Letters newer than utf8proc's tables may be.
  constexpr Pair kNewerLetters[] = {
      {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x264},     {0xA7CC, 0xA7CC, 0xA7CD}, {0xA7CE, 0xA7CE, 0xA7CF},
      {0xA7D2, 0xA7D2, 0xA7D3},    {0xA7D4, 0xA7D4, 0xA7D5},    {0xA7DA, 0xA7DA, 0xA7DB}, {0xA7DC, 0xA7DC, 0x19B},
      {0x10D50, 0x10D65, 0x10D70}, {0x16EA0, 0x16EB8, 0x16EBB},
  };
  std::string out;
  out.reserve(text.size());
  size_t bytes = 0;
  for (size_t at = 0; at < text.size(); at += bytes) {
    uint32_t code = code_at(text.data() + at, &bytes);
    if (code == 0x130) {  // the only letter whose lower case is two characters
      out += "i\xCC\x87";
      continue;
    }
    auto lower = static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
    for (const Pair& pair : kNewerLetters) {
      if (code >= pair.first && code <= pair.last) lower = pair.lower + (code - pair.first);
    }
    append_utf8(out, lower);
  }
  return out;
}

size_t grapheme_bytes(std::string_view text) {
  size_t bytes = 0, at = 0;
  auto previous = static_cast<utf8proc_int32_t>(code_at(text.data(), &bytes));
  utf8proc_int32_t state = 0;
  for (at = bytes; at < text.size(); at += bytes) {
    auto code = static_cast<utf8proc_int32_t>(code_at(text.data() + at, &bytes));
    if (utf8proc_grapheme_break_stateful(previous, code, &state)) break;
    previous = code;
  }
  return at;
}

}  // namespace millrace
