#include "text/normalizer.h"

#include <algorithm>
#include <utility>

#include "text/byte_level.h"

namespace millrace {
namespace {

constexpr int kDepth = 8;
constexpr size_t kMostSteps = 64;

bool is_space(uint32_t code) { return CategoryTable::get().in(code, kSpace); }

// Keeps or maps characters one by one: map(code) gives the new one, or -1 for none.
template <class Map>
std::string map_characters(std::string_view text, bool* at_start, Map&& map) {
  std::string out;
  out.reserve(text.size());
  size_t bytes = 0;
  for (size_t at = 0; at < text.size(); at += bytes) {
    int64_t code = map(code_at(text.data() + at, &bytes));
    if (code >= 0) {
      append_utf8(out, static_cast<uint32_t>(code));
    } else if (out.empty()) {
      *at_start = false;
    }
  }
  return out;
}

// What Google's translation models did to control characters and odd spaces.
int64_t map_nmt(uint32_t code) {
  if ((code >= 1 && code <= 8) || code == 0xB || (code >= 0xE && code <= 0x1F) || code == 0x7F || code == 0x8F ||
      code == 0x9F) {
    return -1;
  }
  const bool space = code == 9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
                     (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
                     code == 0xFEFF || code == 0xFFFD;
  return space ? ' ' : static_cast<int64_t>(code);
}

// Ideographs that BERT sets apart as words, by the ranges its tokenizers have.
bool is_ideograph(uint32_t code) {
  constexpr std::pair<uint32_t, uint32_t> kRanges[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                                       {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                                       {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return std::ranges::any_of(kRanges, [&](const auto& range) { return code >= range.first && code <= range.second; });
}

// Controls go, white space becomes spaces.
int64_t map_clean(uint32_t code) {
  if (is_space(code)) return ' ';
  const CharClass other = class_of(Category::Cc, Category::Cf, Category::Co);
  return code == 0 || code == 0xFFFD || CategoryTable::get().in(code, other) ? -1 : int64_t{code};
}

std::string ideographs_apart(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t bytes = 0;
  for (size_t at = 0; at < text.size(); at += bytes) {
    const bool apart = is_ideograph(code_at(text.data() + at, &bytes));
    if (apart) out.push_back(' ');
    out.append(text, at, bytes);
    if (apart) out.push_back(' ');
  }
  return out;
}

}  // namespace

struct Normalizer::Runner {
  std::string& text;
  bool* at_start;
  RegexScratch& scratch;
  size_t most;  // bytes; more end in an error, so that a step may stop there

  void operator()(NormalForm form) const { text = normalize(text, form, most); }
  void operator()(const Prepend& prepend) const {
    if (!text.empty()) text.insert(0, prepend.text);
  }
  void operator()(const Replace& replace) const {
    std::string out;
    out.reserve(text.size() + text.size() / 4);
    auto add = [&](size_t begin, size_t end, bool match) {
      if (out.size() > most) return;
      match ? out += replace.content : out.append(text, begin, end - begin);
    };
    const std::string& literal = replace.pattern.literal_text();
    if (literal.size() == 1) {  // spaces, mostly
      for (char c : text) {
        if (c != literal[0]) {
          out.push_back(c);
        } else if (out.size() <= most) {
          out += replace.content;
        }
      }
    } else {
      for_each_part(text, replace.pattern, scratch, add);
    }
    text = std::move(out);
  }
  void operator()(const Strip& strip) const {
    size_t begin = 0, end = text.size(), bytes = 0;
    while (strip.left && begin < end && is_space(code_at(text.data() + begin, &bytes))) begin += bytes;
    while (strip.right && end > begin) {
      size_t last = end - 1;
      while (last > begin && !is_char_start(text[last])) --last;
      if (!is_space(code_at(text.data() + last, &bytes))) break;
      end = last;
    }
    if (begin > 0) *at_start = false;
    text = text.substr(begin, end - begin);
  }
  void operator()(Lowercase) const { text = lowercase(text); }
  void operator()(StripAccents) const {
    text = map_characters(text, at_start,
                          [](uint32_t code) -> int64_t { return is_combining_mark(code) ? -1 : int64_t{code}; });
  }
  void operator()(ByteLevel) const { text = to_byte_level(text); }
  void operator()(Nmt) const { text = map_characters(text, at_start, map_nmt); }
  void operator()(const Bert& bert) const {
    if (bert.clean) text = map_characters(text, at_start, map_clean);
    if (bert.chinese) text = ideographs_apart(text);
    if (bert.accents) {
      text = map_characters(normalize(text, NormalForm::nfd), at_start, [](uint32_t code) -> int64_t {
        return CategoryTable::get().of(code) == Category::Mn ? -1 : int64_t{code};
      });
    }
    if (bert.lower) text = lowercase(text);
  }
  void operator()(const Charsmap& charsmap) const { text = charsmap.by_grapheme(text, most); }
};

Result<void> Normalizer::run(std::string& text, bool* at_start, RegexScratch& scratch, GrowthBudget& budget) const {
  const size_t before = text.size(), most = before + budget.left();
  size_t after = before;
  for (const Step& step : steps_) {
    std::visit(Runner{text, at_start, scratch, most}, step);
    if (std::holds_alternative<ByteLevel>(step)) break;  // the last one, and it doubles a text at most
    after = text.size();
    if (after > most) break;
  }
  if (after > before) budget.take(after - before);
  return budget.status();
}

double Normalizer::growth() const {
  double most = 1;
  for (const Step& step : steps_) {
    if (const auto* prepend = std::get_if<Prepend>(&step)) most *= 1 + static_cast<double>(prepend->text.size());
    if (const auto* replace = std::get_if<Replace>(&step)) most *= replace->pattern.growth(replace->content);
    if (const auto* charsmap = std::get_if<Charsmap>(&step)) most *= charsmap->growth();
    if (std::holds_alternative<ByteLevel>(step) || std::holds_alternative<Bert>(step)) most *= 2;
  }
  return most;
}

Result<Normalizer> Normalizer::from_json(const Json& json) {
  Normalizer normalizer;
  if (!json.is_null()) TRY_VOID(normalizer.add_json(json, 0));
  if (normalizer.growth() > kMostGrowth) {
    return error(
        Code::invalid,
        "its {} normalizer steps ({}) could make a text {:.0f} times as long; {:.0f} is the most that is allowed",
        normalizer.steps_.size(), normalizer.signature_.substr(0, 80), normalizer.growth(), kMostGrowth);
  }
  return normalizer;
}

Result<void> Normalizer::add_json(const Json& json, int depth) {
  TRY(std::string type, get_string(json, "type", ""));
  if (depth > kDepth || steps_.size() > kMostSteps)
    return error(Code::unsupported, "the normalizer has too many steps");
  if (byte_level_) return error(Code::unsupported, "the normalizer has a step after ByteLevel");
  if (type == "Sequence") {
    const Json* list = find(json, "normalizers");
    if (list == nullptr || !list->is_array()) return error(Code::invalid, "a normalizer sequence has no 'normalizers'");
    for (const Json& item : list->get_array()) TRY_VOID(add_json(item, depth + 1));
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    add_form(type == "NFC"    ? NormalForm::nfc
             : type == "NFD"  ? NormalForm::nfd
             : type == "NFKC" ? NormalForm::nfkc
                              : NormalForm::nfkd);
  } else if (type == "Prepend") {
    TRY(std::string text, get_string(json, "prepend", ""));
    add_prepend(std::move(text));
  } else if (type == "Replace") {
    const Json* pattern_json = find(json, "pattern");
    if (pattern_json == nullptr) return error(Code::invalid, "a Replace normalizer has no 'pattern'");
    TRY(Pattern pattern, Pattern::from_json(*pattern_json));
    TRY(std::string content, get_string(json, "content", ""));
    add_replace(std::move(pattern), std::move(content));
  } else if (type == "Strip") {
    TRY(bool left, get_bool(json, "strip_left", true));
    TRY(bool right, get_bool(json, "strip_right", true));
    add(Strip{left, right}, "strip");
  } else if (type == "Lowercase") {
    add(Lowercase{}, "lowercase");
  } else if (type == "BertNormalizer") {
    Bert bert;
    TRY(bert.clean, get_bool(json, "clean_text", true));
    TRY(bert.chinese, get_bool(json, "handle_chinese_chars", true));
    TRY(bert.lower, get_bool(json, "lowercase", true));
    TRY(bert.accents, get_bool(json, "strip_accents", bert.lower));
    add(bert, "bert");
  } else if (type == "StripAccents") {
    add(StripAccents{}, "strip_accents");
  } else if (type == "ByteLevel") {
    add(ByteLevel{}, "byte_level");
    byte_level_ = true;
  } else if (type == "Nmt") {
    add(Nmt{}, "nmt");
  } else if (type == "Precompiled") {
    TRY(std::string encoded, get_string(json, "precompiled_charsmap", ""));
    TRY(Charsmap charsmap, Charsmap::from_base64(encoded));
    add(std::move(charsmap), "charsmap");
  } else {
    return error(Code::unsupported, "the normalizer '{}' is not supported", type);
  }
  return {};
}

}  // namespace millrace
