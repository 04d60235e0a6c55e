#include "server/glance.h"

#include "base/json.h"

namespace millrace {
namespace {

// Where a string that begins at `at` ends: after its closing quote; npos if it does not.
size_t end_of_string(std::string_view text, size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '\\')
      ++at;
    else if (text[at] == '"')
      return at + 1;
  }
  return std::string_view::npos;
}

size_t skip_blank(std::string_view text, size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r')) ++at;
  return at;
}

std::string string_at(std::string_view text, size_t at) {
  constexpr size_t kLongest = 4096;
  const size_t end = at < text.size() && text[at] == '"' ? end_of_string(text, at) : std::string_view::npos;
  if (end == std::string_view::npos || end - at > kLongest) return "";
  const auto json = parse_json(text.substr(at, end - at));
  return json.ok() && json->is_string() ? std::string(json->get_string()) : "";
}

}  // namespace

std::optional<std::string> string_at_a_glance(std::string_view text, std::string_view key) {
  int depth = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c != '"') {
      ++at;
      continue;
    }
    const size_t end = end_of_string(text, at);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view word = text.substr(at + 1, end - at - 2);
    at = end;
    if (depth != 1 || word != key) continue;
    const size_t colon = skip_blank(text, at);
    if (colon < text.size() && text[colon] == ':') return string_at(text, skip_blank(text, colon + 1));
  }
  return std::nullopt;
}

}  // namespace millrace
