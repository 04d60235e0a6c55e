#include "text/pre_tokenizer.h"

#include <algorithm>

#include "text/byte_level.h"
#include "text/unicode.h"

namespace millrace {
namespace {

constexpr size_t kMostSteps = 64;
constexpr int kDepth = 8;
// Each keeps a text of its own while the steps after it run, and can double the pieces of the one before. Known files
// have one.
constexpr long kMostMetaspaces = 4;

bool is_space(uint32_t code) { return CategoryTable::get().in(code, kSpace); }
bool is_number(uint32_t code) { return CategoryTable::get().in(code, kNumber); }

// \w+|[^\w\s]+ of the regex crate, whose \w has the joiners.
Span scan_words(std::string_view text, size_t from) {
  auto kind = [&](size_t at, size_t* bytes) {
    uint32_t code = code_at(text.data() + at, bytes);
    return is_word(code, true) ? 1 : is_space(code) ? 0 : 2;
  };
  size_t bytes = 0;
  for (size_t at = from; at < text.size(); at += bytes) {
    const int first = kind(at, &bytes);
    if (first == 0) continue;
    size_t end = at + bytes;
    while (end < text.size() && kind(end, &bytes) == first) end += bytes;
    return {at, end};
  }
  return {};
}

}  // namespace

void PreTokenizer::note(std::string_view what) {
  if (!signature_.empty()) signature_ += '|';
  signature_ += what;
}

void PreTokenizer::add_split(Pattern pattern, Split how, bool invert) {
  Step step;
  note(fmt::format("split:{} {}{}", pattern.source(), static_cast<int>(how), invert ? " inverted" : ""));
  step.pattern = std::move(pattern);
  step.how = how;
  step.invert = invert;
  steps_.push_back(std::move(step));
  last_split_ = byte_level_ ? SIZE_MAX : steps_.size() - 1;
}

void PreTokenizer::add_byte_level(bool prefix_space, bool split_words) {
  if (prefix_space) {
    note("prefix_space");
    Step step;
    step.kind = Kind::prefix_space;
    steps_.push_back(std::move(step));
    last_split_ = SIZE_MAX;
  }
  if (split_words) {
    auto words = Pattern::regex(known_pattern("gpt-2"));
    CHECK(words.ok());
    add_split(std::move(words).value());
  }
  byte_level_ = true;
  byte_level_step_ = steps_.size();
  Step step;
  step.kind = Kind::byte_chars;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_metaspace(std::string mark, char when, bool splits) {
  note(fmt::format("metaspace {} {} {}", mark, when, splits));
  Step step;
  step.kind = Kind::metaspace;
  step.pattern = Pattern::literal(mark);
  step.mark = std::move(mark);
  step.when = when;
  step.splits = splits;
  steps_.push_back(std::move(step));
  last_split_ = SIZE_MAX;
}

void PreTokenizer::add_bert() {
  add_split(Pattern::characters("spaces", is_space), Split::removed);
  add_split(Pattern::characters("punctuation", is_split_punctuation), Split::isolated);
}

Result<PreTokenizer> PreTokenizer::from_json(const Json& json) {
  PreTokenizer pre;
  if (!json.is_null()) TRY_VOID(pre.add_json(json, 0));
  return pre;
}

Result<void> PreTokenizer::add_json(const Json& json, int depth) {
  TRY(std::string type, get_string(json, "type", ""));
  if (depth > kDepth || steps_.size() > kMostSteps)
    return error(Code::unsupported, "the pre-tokenizer has too many steps");
  if (type == "Sequence") {
    const Json* list = find(json, "pretokenizers");
    if (list == nullptr || !list->is_array())
      return error(Code::invalid, "a pre-tokenizer sequence has no 'pretokenizers'");
    for (const Json& item : list->get_array()) TRY_VOID(add_json(item, depth + 1));
  } else if (type == "Split") {
    const Json* pattern_json = find(json, "pattern");
    if (pattern_json == nullptr) return error(Code::invalid, "a Split pre-tokenizer has no 'pattern'");
    TRY(Pattern pattern, Pattern::from_json(*pattern_json));
    TRY(std::string behavior, get_string(json, "behavior", ""));
    TRY(Split how, split_from_name(behavior));
    TRY(bool invert, get_bool(json, "invert", false));
    add_split(std::move(pattern), how, invert);
  } else if (type == "ByteLevel") {
    if (byte_level_) return error(Code::unsupported, "the pre-tokenizer has ByteLevel twice");
    TRY(bool prefix, get_bool(json, "add_prefix_space", true));
    TRY(bool words, get_bool(json, "use_regex", true));
    add_byte_level(prefix, words);
  } else if (type == "Metaspace") {
    if (byte_level_) return error(Code::unsupported, "the pre-tokenizer has Metaspace after ByteLevel");
    if (std::ranges::count(steps_, Kind::metaspace, &Step::kind) == kMostMetaspaces)
      return error(Code::unsupported, "the pre-tokenizer has Metaspace more than {} times", kMostMetaspaces);
    TRY(std::string mark, get_string(json, "replacement", "\xE2\x96\x81"));
    TRY(std::string scheme, get_string(json, "prepend_scheme", "always"));
    TRY(bool prefix, get_bool(json, "add_prefix_space", true));
    TRY(bool splits, get_bool(json, "split", true));
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      return error(Code::unsupported, "the prepend_scheme '{}' is unknown", scheme);
    }
    if (mark.empty() || mark.size() != char_bytes(mark[0])) {
      return error(Code::invalid, "the replacement of Metaspace should be one character, but is '{}'", mark);
    }
    add_metaspace(std::move(mark), prefix ? scheme[0] : 'n', splits);
  } else if (type == "Digits") {
    TRY(bool individual, get_bool(json, "individual_digits", false));
    add_split(Pattern::characters("digits", is_number), individual ? Split::isolated : Split::contiguous);
  } else if (type == "Punctuation") {
    TRY(std::string behavior, get_string(json, "behavior", "Isolated"));
    TRY(Split how, split_from_name(behavior));
    add_split(Pattern::characters("punctuation", is_split_punctuation), how);
  } else if (type == "Whitespace") {
    add_split(Pattern::scanned("words", scan_words), Split::removed, true);
  } else if (type == "WhitespaceSplit") {
    add_split(Pattern::characters("spaces", is_space), Split::removed);
  } else if (type == "BertPreTokenizer") {
    add_bert();
  } else if (type == "CharDelimiterSplit" || type == "Delimiter") {
    TRY(std::string delimiter, get_string(json, "delimiter", " "));
    add_split(Pattern::literal(delimiter), Split::removed);
  } else {
    return error(Code::unsupported, "the pre-tokenizer '{}' is not supported", type);
  }
  return {};
}

Result<void> PreTokenizer::run(std::string_view text, bool at_start, RegexScratch& scratch, GrowthBudget& budget,
                               PieceSink& sink) const {
  run_step(0, text, at_start, {scratch, budget, sink});
  return budget.status();
}

void PreTokenizer::run_step(size_t step, std::string_view text, bool at_start, const Run& run) const {
  if (step == steps_.size()) return finish(text, run.sink);
  const Step& now = steps_[step];
  switch (now.kind) {
    case Kind::split:
      split(text, now.pattern, now.how, now.invert, run.scratch, [&](size_t begin, size_t end) {
        std::string_view part = text.substr(begin, end - begin);
        if (step == last_split_) {  // where the time goes: straight to the model
          run.sink.piece(part);
        } else {
          run_step(step + 1, part, at_start && begin == 0, run);
        }
      });
      return;
    case Kind::prefix_space:
      if (!text.empty() && text[0] != ' ') {
        std::string longer;
        longer.reserve(text.size() + 1);
        longer.append(" ").append(text);
        return run_step(step + 1, longer, at_start, run);
      }
      return run_step(step + 1, text, at_start, run);
    case Kind::byte_chars:
      if (step + 1 == steps_.size()) return run.sink.piece(text);
      return run_step(step + 1, to_byte_level(text), at_start, run);
    case Kind::metaspace:
      return run_metaspace(step, text, at_start, run);
  }
}

void PreTokenizer::run_metaspace(size_t step, std::string_view text, bool at_start, const Run& run) const {
  const Step& now = steps_[step];
  std::string marked;
  marked.reserve(text.size() + text.size() / 4 + now.mark.size());
  const bool starts_marked = text.substr(0, now.mark.size()) == now.mark || (!text.empty() && text[0] == ' ');
  if (!text.empty() && !starts_marked && (now.when == 'a' || (now.when == 'f' && at_start))) marked += now.mark;
  for (char c : text) {
    if (c == ' ') {
      marked += now.mark;
    } else {
      marked.push_back(c);
    }
  }
  if (!run.budget.take(marked.size() - text.size())) return;
  if (!now.splits) return run_step(step + 1, marked, at_start, run);
  const std::string_view all = marked;
  split(all, now.pattern, Split::merged_with_next, false, run.scratch, [&](size_t begin, size_t end) {
    run_step(step + 1, all.substr(begin, end - begin), at_start && begin == 0, run);
  });
}

void PreTokenizer::finish(std::string_view text, PieceSink& sink) const {
  if (text.empty()) return;
  const bool characters = byte_level_ && byte_level_step_ + 1 < steps_.size();
  if (!characters) return sink.piece(text);
  std::string bytes;
  const bool known = append_from_byte_level(bytes, text);
  CHECK(known, "a split made characters");
  sink.piece(bytes);
}

}  // namespace millrace
