#include <algorithm>

#include "text/template/code_points.h"
#include "text/template/convert.h"
#include "text/template/methods.h"
#include "text/template/operators.h"

namespace millrace::jinja {
namespace {

using Parts = std::vector<std::string_view>;

Result<Value> to_list(Run& run, const Parts& parts, bool markup) {
  Values items;
  for (std::string_view part : parts) {
    TRY_VOID(run.move_bytes(part.size()));
    items.push_back(run.heap.text(std::string(part), markup));
  }
  return run.heap.list(std::move(items));
}

// Words from the left; once the limit is reached, the rest stays whole.
Parts words_from_left(std::string_view text, uint64_t limit) {
  Parts parts;
  text = strip_left(text);
  while (!text.empty()) {
    if (parts.size() == limit) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      size_t next = end;
      if (is_space(next_code_point(text, next))) break;
      end = next;
    }
    parts.push_back(text.substr(0, end));
    text = strip_left(text.substr(end));
  }
  return parts;
}

Parts words_from_right(std::string_view text, uint64_t limit) {
  Parts parts;
  text = strip_right(text);
  while (!text.empty()) {
    if (parts.size() == limit) {
      parts.push_back(text);
      break;
    }
    size_t start = text.size();
    while (start > 0) {
      size_t before = start;
      if (is_space(previous_code_point(text, before))) break;
      start = before;
    }
    parts.push_back(text.substr(start));
    text = strip_right(text.substr(0, start));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Parts split_at(std::string_view text, std::string_view separator, uint64_t limit) {
  Parts parts;
  size_t start = 0;
  for (auto at = find_first(text, separator); at && parts.size() < limit; at = find_first(text, separator, start)) {
    parts.push_back(text.substr(start, *at - start));
    start = *at + separator.size();
  }
  parts.push_back(text.substr(start));
  return parts;
}

Parts split_at_from_right(std::string_view text, std::string_view separator, uint64_t limit) {
  Parts parts;
  while (parts.size() < limit) {
    auto at = find_last(text, separator);
    if (!at) break;
    parts.push_back(text.substr(*at + separator.size()));
    text = text.substr(0, *at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Result<Value> split(Run& run, const Value& self, Arguments& arguments, bool from_right) {
  static constexpr std::string_view kParameters[] = {"sep", "maxsplit"};
  TRY(Values bound_to, bind_arguments(from_right ? "rsplit" : "split", arguments, kParameters, 0));
  TRY(int64_t wanted, to_integer_or(bound_to[1], "maxsplit", -1));
  auto limit = wanted < 0 ? std::numeric_limits<uint64_t>::max() : static_cast<uint64_t>(wanted);
  const auto& text = self.as<Text>();
  TRY_VOID(run.read_bytes(text.bytes_utf8.size()));
  TRY_VOID(run.room_for(text.bytes_utf8.size()));
  if (bound_to[0].is_missing() || bound_to[0].is(Type::none)) {
    auto parts = from_right ? words_from_right(text.bytes_utf8, limit) : words_from_left(text.bytes_utf8, limit);
    return to_list(run, parts, text.markup);
  }
  TRY(std::string_view separator, to_text(bound_to[0], "sep"));
  if (separator.empty()) return fail("empty separator");
  auto parts =
      from_right ? split_at_from_right(text.bytes_utf8, separator, limit) : split_at(text.bytes_utf8, separator, limit);
  return to_list(run, parts, text.markup);
}

Result<Value> lines(Run& run, const Value& self, Arguments& arguments) {
  static constexpr std::string_view kParameters[] = {"keepends"};
  TRY(Values bound_to, bind_arguments("splitlines", arguments, kParameters, 0));
  TRY(bool keep, truthy(run, bound_to[0]));
  const auto& text = self.as<Text>();
  TRY_VOID(run.read_bytes(text.bytes_utf8.size()));
  return to_list(run, split_lines(text.bytes_utf8, keep), text.markup);
}

Result<Value> partition(Run& run, const Value& self, Arguments& arguments, bool from_right) {
  TRY_VOID(positional_only(from_right ? "rpartition" : "partition", arguments, 1, 1));
  TRY(std::string_view separator, to_text(arguments.positional[0], "the separator"));
  const auto& whole = self.as<Text>();
  std::string escaped_separator;
  if (whole.markup) {
    TRY(escaped_separator, escaped(run, arguments.positional[0]));
    separator = escaped_separator;
  }
  if (separator.empty()) return fail("empty separator");
  std::string_view text = whole.bytes_utf8;
  TRY_VOID(run.read_bytes(text.size()));
  auto made = [&](std::string_view part) { return run.heap.text(std::string(part), whole.markup); };
  auto at = from_right ? find_last(text, separator) : find_first(text, separator);
  if (!at) {
    return from_right ? run.heap.tuple({made(""), made(""), made(text)})
                      : run.heap.tuple({made(text), made(""), made("")});
  }
  return run.heap.tuple({made(text.substr(0, *at)), made(separator), made(text.substr(*at + separator.size()))});
}

constexpr Builtin kMethods[] = {
    {"split", [](Run& r, const Value& s, Arguments& a) { return split(r, s, a, false); }},
    {"rsplit", [](Run& r, const Value& s, Arguments& a) { return split(r, s, a, true); }},
    {"splitlines", lines},
    {"partition", [](Run& r, const Value& s, Arguments& a) { return partition(r, s, a, false); }},
    {"rpartition", [](Run& r, const Value& s, Arguments& a) { return partition(r, s, a, true); }},
};

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::span<const Builtin> text_split_methods() { return kMethods; }

std::vector<std::string_view> split_words(std::string_view text) {
  return words_from_left(text, std::numeric_limits<uint64_t>::max());
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    size_t line_end = i;
    char32_t c = next_code_point(text, i);
    if (!ends_line(c)) continue;
    if (c == '\r' && i < text.size() && text[i] == '\n') ++i;
    parts.push_back(text.substr(start, (keep_ends ? i : line_end) - start));
    start = i;
  }
  if (start < text.size()) parts.push_back(text.substr(start));
  return parts;
}

}  // namespace millrace::jinja
