// Filters that take a text apart or give it another shape.
#include <algorithm>

#include "text/template/code_points.h"
#include "text/template/convert.h"
#include "text/template/filters.h"
#include "text/template/json_text.h"
#include "text/template/methods.h"
#include "text/template/operators.h"
#include "text/template/percent_format.h"
#include "text/template/pretty.h"

namespace millrace::jinja {
namespace {

// MarkupSafe's soft_str: texts as they are, anything else as str() gives it.
Result<Value> soft_text(Run& run, const Value& value) {
  if (value.is_text()) return value;
  TRY(std::string text, to_str(run, value));
  return run.heap.text(std::move(text));
}

Result<Value> map_case(Run& run, const Value& input, std::string (*mapping)(std::string_view)) {
  TRY(Value text, soft_text(run, input));
  TRY_VOID(run.read_bytes(text_of(text).size()));
  TRY_VOID(run.room_for(text_of(text).size() * 3));
  return run.heap.text(mapping(text_of(text)), text.as<Text>().markup);
}

// Jinja's own title: words start at spaces and some punctuation.
std::string title_words(std::string_view text) {
  std::string out;
  std::string_view separators = "-({[<";
  auto is_separator = [&](char32_t c) {
    return is_space(c) || (c < 0x80 && separators.find(static_cast<char>(c)) != std::string_view::npos);
  };
  for (size_t i = 0; i < text.size();) {
    size_t start = i;
    char32_t first = next_code_point(text, i);
    size_t first_end = i;
    bool separator = is_separator(first);
    while (i < text.size()) {
      size_t next = i;
      if (is_separator(next_code_point(text, next)) != separator) break;
      i = next;
    }
    out += upper(text.substr(start, first_end - start));
    out += lower(text.substr(first_end, i - first_end));
  }
  return out;
}

Result<Value> title_filter(Run& run, const Value& input, Values&) {
  TRY(Value text, soft_text(run, input));
  TRY_VOID(run.read_bytes(text_of(text).size()));
  return run.heap.text(title_words(text_of(text)));
}

Result<Value> trim(Run& run, const Value& input, Values& arguments) {
  TRY(Value text, soft_text(run, input));
  TRY_VOID(run.read_bytes(text_of(text).size()));
  std::string_view characters;
  bool given = !arguments[0].is_missing() && !arguments[0].is(Type::none);
  if (given) {
    TRY(characters, to_text(arguments[0], "the characters to trim"));
    TRY_VOID(run.read_bytes(characters.size()));
  }
  auto stripped = strip_text(text_of(text), given ? &characters : nullptr, true, true);
  return run.heap.text(std::string(stripped), text.as<Text>().markup);
}

Result<Value> center(Run& run, const Value& input, Values& arguments) {
  TRY(Value text, soft_text(run, input));
  TRY(int64_t width, to_integer_or(arguments[0], "the width", 80));
  TRY(std::string out, center_text(run, text_of(text), width, " "));
  return run.heap.text(std::move(out), text.as<Text>().markup);
}

Result<Value> replace(Run& run, const Value& input, Values& arguments) {
  TRY(std::string text, to_str(run, input));
  TRY(std::string from, to_str(run, arguments[0]));
  TRY(std::string to, to_str(run, arguments[1]));
  TRY(int64_t count, to_integer_or(arguments[2], "the count", -1));
  TRY(std::string out, replace_text(run, text, from, to, count));
  return run.heap.text(std::move(out));
}

Result<Value> indent(Run& run, const Value& input, Values& arguments) {
  TRY(std::string_view text, to_text(input, "the input of indent"));
  const bool markup = input.as<Text>().markup;
  std::string indention;
  if (arguments[0].is_text()) {
    indention = text_of(arguments[0]);
  } else {
    TRY(int64_t width, to_integer_or(arguments[0], "the width", 4));
    TRY_VOID(run.reserve(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  TRY(bool first, truthy(run, arguments[1]));
  TRY(bool blank, truthy(run, arguments[2]));
  TRY_VOID(run.read_bytes(text.size()));
  // As Jinja does: a text that ends with a line end has one more, empty, line.
  TRY_VOID(run.room_for(text.size() + 1));
  const std::string whole = std::string(text) + "\n";
  auto lines = split_lines(whole, false);
  std::string out = first ? indention : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += indention;
    out += lines[i];
    TRY_VOID(run.step(1 + (indention.size() + lines[i].size()) / 512));
    TRY_VOID(run.room_for(out.size()));
  }
  return run.heap.text(std::move(out), markup);
}

Result<Value> truncate(Run& run, const Value& input, Values& arguments) {
  TRY(int64_t length, to_integer_or(arguments[0], "the length", 255));
  TRY(bool kill_words, truthy(run, arguments[1]));
  Value end = arguments[2].is_missing() ? run.heap.text("...") : arguments[2];
  TRY(std::string_view end_text, to_text(end, "the end of truncate"));
  TRY(int64_t leeway, to_integer_or(arguments[3], "the leeway", 5));
  auto end_length = static_cast<int64_t>(count_code_points(end_text));
  if (length < end_length) return fail("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) return fail("expected leeway >= 0, got {}", leeway);
  TRY(int64_t size, jinja::length(run, input));
  if (size <= length || size - length <= leeway) return input;
  TRY(std::string_view text, to_text(input, "the input of truncate"));
  TRY_VOID(run.read_bytes(text.size()));
  std::string_view kept = text.substr(0, byte_offset(text, static_cast<size_t>(length - end_length)));
  if (!kill_words) kept = kept.substr(0, std::min(kept.rfind(' '), kept.size()));
  Value start = run.heap.text(std::string(kept), input.as<Text>().markup);
  return binary(run, BinaryOperator::add, start, end);
}

Result<Value> word_wrap(Run& run, const Value& input, Values& arguments) {
  TRY(std::string_view text, to_text(input, "the input of wordwrap"));
  WrapOptions options;
  TRY(options.width, to_integer_or(arguments[0], "the width", 79));
  if (!arguments[1].is_missing()) {
    TRY(options.break_long_words, truthy(run, arguments[1]));
  }
  if (!arguments[3].is_missing()) {
    TRY(options.break_on_hyphens, truthy(run, arguments[3]));
  }
  std::string separator = "\n";
  if (!arguments[2].is_missing() && !arguments[2].is(Type::none)) {
    TRY(std::string_view given, to_text(arguments[2], "wrapstring"));
    separator = given;
  }
  std::string out;
  bool first = true;
  for (std::string_view paragraph : split_lines(text, false)) {
    TRY(auto lines, wrap_text(run, paragraph, options));
    if (lines.empty()) lines.emplace_back();
    for (const std::string& line : lines) {
      if (!first) out += separator;
      first = false;
      out += line;
      TRY_VOID(run.step(1 + separator.size() / 512));
      TRY_VOID(run.room_for(out.size()));
    }
  }
  return run.heap.text(std::move(out));
}

Result<Value> word_count(Run& run, const Value& input, Values&) {
  TRY(Value text, soft_text(run, input));
  TRY_VOID(run.read_bytes(text_of(text).size()));
  int64_t words = 0;
  bool in_word = false;
  for (size_t i = 0; i < text_of(text).size();) {
    char32_t c = next_code_point(text_of(text), i);
    bool part = c == '_' || is_alnum(c);
    words += part && !in_word ? 1 : 0;
    in_word = part;
  }
  return Value::integer(words);
}

Result<Value> format(Run& run, const Value& input, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return fail("can't handle positional and keyword arguments at the same time");
  }
  TRY(Value text, soft_text(run, input));
  if (arguments.named.empty()) {
    return percent_format(run, text, run.heap.tuple(std::move(arguments.positional)));
  }
  std::vector<Dict::Entry> entries;
  for (auto& [name, value] : arguments.named) entries.emplace_back(run.heap.text(name), std::move(value));
  TRY(Value dict, make_dict(run, std::move(entries)));
  return percent_format(run, text, dict);
}

// transformers' tojson: json.dumps without HTML escapes, and with its options.
Result<Value> to_json_filter(Run& run, const Value& input, Values& arguments) {
  JsonStyle style;
  TRY(style.ensure_ascii, truthy(run, arguments[0]));
  TRY(style.sort_keys, truthy(run, arguments[3]));
  const Value& indent_by = arguments[1];
  if (indent_by.is_text()) {
    style.indent = text_of(indent_by);
  } else if (!indent_by.is_missing() && !indent_by.is(Type::none)) {
    TRY(int64_t width, to_integer(indent_by, "indent"));
    TRY_VOID(run.reserve(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
    style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (style.indent) style.item_separator = ",";
  const Value& separators = arguments[2];
  if (!separators.is_missing() && !separators.is(Type::none)) {
    bool pair = (separators.is(Type::list) || separators.is(Type::tuple)) && items_of(separators).size() == 2;
    if (!pair) return fail("separators should be a pair of strings");
    TRY(std::string_view between_items, to_text(items_of(separators)[0], "separators"));
    TRY(std::string_view after_keys, to_text(items_of(separators)[1], "separators"));
    style.item_separator = between_items;
    style.key_separator = after_keys;
  }
  TRY(std::string out, to_json(run, input, style));
  return run.heap.text(std::move(out));
}

Result<Value> pretty_print(Run& run, const Value& input, Values&) {
  TRY(std::string out, pretty_repr(run, input));
  return run.heap.text(std::move(out));
}

const FilterEntry kFilters[] = {
    {"upper", {}, 0, [](Run& run, const Value& input, Values&) { return map_case(run, input, upper); }},
    {"lower", {}, 0, [](Run& run, const Value& input, Values&) { return map_case(run, input, lower); }},
    {"capitalize", {}, 0, [](Run& run, const Value& input, Values&) { return map_case(run, input, capitalize); }},
    {"string", {}, 0, [](Run& run, const Value& input, Values&) { return soft_text(run, input); }},
    {"title", {}, 0, title_filter},
    {"trim", {"chars"}, 0, trim},
    {"center", {"width"}, 0, center},
    {"replace", {"old", "new", "count"}, 2, replace},
    {"indent", {"width", "first", "blank"}, 0, indent},
    {"truncate", {"length", "killwords", "end", "leeway"}, 0, truncate},
    {"wordwrap", {"width", "break_long_words", "wrapstring", "break_on_hyphens"}, 0, word_wrap},
    {"wordcount", {}, 0, word_count},
    {"format", {}, 0, nullptr, format},
    {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, to_json_filter},
    {"pprint", {}, 0, pretty_print},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kFilters; }

}  // namespace millrace::jinja
