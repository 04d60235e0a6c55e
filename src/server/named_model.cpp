// Which model a body is for, found without reading the body: only the keys of its top level are looked at.
#include "base/json.h"
#include "server/shelf.h"

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

std::string model_of_body(std::string_view text) {
  constexpr std::string_view kKey = "\"model\"", kOllama = "\"name\"";
  int depth = 0;
  std::string other;  // older Ollama clients say name
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c != '"') {
      ++at;
      continue;
    }
    const size_t end = end_of_string(text, at);
    if (end == std::string_view::npos) return other;
    const std::string_view word = text.substr(at, end - at);
    at = end;
    if (depth != 1 || (word != kKey && word != kOllama)) continue;
    const size_t colon = skip_blank(text, at);
    if (colon >= text.size() || text[colon] != ':') continue;
    std::string found = string_at(text, skip_blank(text, colon + 1));
    if (word == kKey) return found;
    other = std::move(found);
  }
  return other;
}

}  // namespace

std::string named_model(const HttpRequest& request) {
  std::string asked = query_value(request.query, "model");
  if (!asked.empty()) return asked;
  return model_of_body(request.body);
}

}  // namespace millrace
