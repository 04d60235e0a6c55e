#include "text/pattern.h"

#include <algorithm>

#include "text/unicode.h"

namespace millrace {

Result<Pattern> Pattern::regex(std::string_view expression) {
  Pattern pattern;
  pattern.source_ = fmt::format("regex:{}", expression);
  pattern.scanner_ = find_scanner(expression);
  if (pattern.scanner_ == nullptr) {
    TRY(pattern.regex_, Regex::compile(expression));
    pattern.is_regex_ = true;
  }
  return pattern;
}

Pattern Pattern::literal(std::string_view text) {
  Pattern pattern;
  pattern.source_ = fmt::format("string:{}", text);
  pattern.literal_ = text;
  return pattern;
}

Pattern Pattern::characters(std::string_view name, CharTest test) {
  Pattern pattern;
  pattern.source_ = name;
  pattern.test_ = test;
  return pattern;
}

Pattern Pattern::scanned(std::string_view name, Scanner scanner) {
  Pattern pattern;
  pattern.source_ = name;
  pattern.scanner_ = scanner;
  return pattern;
}

Result<Pattern> Pattern::from_json(const Json& json) {
  if (const Json* text = millrace::find(json, "String"); text != nullptr && text->is_string()) {
    return literal(std::string_view(text->get_string()));
  }
  if (const Json* text = millrace::find(json, "Regex"); text != nullptr && text->is_string()) {
    return regex(std::string_view(text->get_string()));
  }
  return error(Code::invalid, "a pattern should be {{\"Regex\": ...}} or {{\"String\": ...}}, but is {}",
               to_text(json));
}

double Pattern::growth(std::string_view content) const {
  const auto bytes = static_cast<double>(content.size());
  // Whatever is no literal may be found between any two bytes.
  return literal_.empty() ? 1 + bytes : std::max(1.0, bytes / static_cast<double>(literal_.size()));
}

Span Pattern::find(std::string_view text, size_t from, RegexScratch& scratch) const {
  if (scanner_ != nullptr) return scanner_(text, from);
  if (is_regex_) return regex_.find(text, from, scratch);
  if (test_ != nullptr) return find_character(text, from);
  size_t at = text.find(literal_, from);
  if (at == text.npos) return {};
  return {at, at + literal_.size()};
}

Span Pattern::find_character(std::string_view text, size_t from) const {
  size_t bytes = 0;
  for (size_t at = from; at < text.size(); at += bytes) {
    if (test_(code_at(text.data() + at, &bytes))) return {at, at + bytes};
  }
  return {};
}

Result<Split> split_from_name(std::string_view name) {
  if (name == "Isolated") return Split::isolated;
  if (name == "Removed") return Split::removed;
  if (name == "Contiguous") return Split::contiguous;
  if (name == "MergedWithPrevious") return Split::merged_with_previous;
  if (name == "MergedWithNext") return Split::merged_with_next;
  return error(Code::unsupported, "the split behaviour '{}' is unknown", name);
}

}  // namespace millrace
