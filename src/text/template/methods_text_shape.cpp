#include <algorithm>

#include "text/template/code_points.h"
#include "text/template/convert.h"
#include "text/template/methods.h"
#include "text/template/operators.h"

namespace millrace::jinja {
namespace {

using Mapping = std::string (*)(std::string_view);

Result<Value> map_case(Run& run, std::string_view what, const Value& self, Arguments& arguments, Mapping mapping,
                       bool keeps_markup = true) {
  TRY_VOID(positional_only(what, arguments, 0, 0));
  TRY_VOID(run.read_bytes(text_of(self).size()));
  TRY_VOID(run.room_for(text_of(self).size() * 3));
  return run.heap.text(mapping(text_of(self)), keeps_markup && self.as<Text>().markup);
}

using Predicate = bool (*)(char32_t);

Result<Value> all_are(Run& run, std::string_view what, const Value& self, Arguments& arguments, Predicate predicate,
                      bool if_empty = false) {
  TRY_VOID(positional_only(what, arguments, 0, 0));
  std::string_view text = text_of(self);
  TRY_VOID(run.read_bytes(text.size()));
  if (text.empty()) return Value::boolean(if_empty);
  for (size_t i = 0; i < text.size();) {
    if (!predicate(next_code_point(text, i))) return Value::boolean(false);
  }
  return Value::boolean(true);
}

// islower and isupper: something cased, and nothing of the other case.
Result<Value> is_all_case(Run& run, std::string_view what, const Value& self, Arguments& arguments, bool lower_case) {
  TRY_VOID(positional_only(what, arguments, 0, 0));
  TRY_VOID(run.read_bytes(text_of(self).size()));
  return Value::boolean(lower_case ? is_lower_text(text_of(self)) : is_upper_text(text_of(self)));
}

Result<Value> is_title_case(Run& run, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("istitle", arguments, 0, 0));
  std::string_view text = text_of(self);
  TRY_VOID(run.read_bytes(text.size()));
  bool cased = false, in_word = false;
  for (size_t i = 0; i < text.size();) {
    char32_t c = next_code_point(text, i);
    if (is_upper(c) || is_title(c)) {
      if (in_word) return Value::boolean(false);
      in_word = cased = true;
    } else if (is_lower(c)) {
      if (!in_word) return Value::boolean(false);
      cased = true;
    } else {
      in_word = false;
    }
  }
  return Value::boolean(cased);
}

Result<Value> is_identifier(Run& run, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("isidentifier", arguments, 0, 0));
  std::string_view text = text_of(self);
  TRY_VOID(run.read_bytes(text.size()));
  if (text.empty()) return Value::boolean(false);
  for (size_t i = 0; i < text.size();) {
    bool first = i == 0;
    char32_t c = next_code_point(text, i);
    if (!(first ? is_identifier_start(c) : is_identifier_part(c))) return Value::boolean(false);
  }
  return Value::boolean(true);
}

Result<Value> strip_method(Run& run, std::string_view what, const Value& self, Arguments& arguments, bool left,
                           bool right) {
  TRY_VOID(positional_only(what, arguments, 0, 1));
  const auto& text = self.as<Text>();
  TRY_VOID(run.read_bytes(text.bytes_utf8.size()));
  std::string escaped_characters;
  std::string_view characters;
  bool given = !arguments.positional.empty() && !arguments.positional[0].is(Type::none);
  if (given) {
    TRY(characters, to_text(arguments.positional[0], what));
    TRY_VOID(run.read_bytes(characters.size()));
    if (text.markup) {
      TRY(escaped_characters, escaped(run, arguments.positional[0]));
      characters = escaped_characters;
    }
  }
  auto stripped = strip_text(text.bytes_utf8, given ? &characters : nullptr, left, right);
  return run.heap.text(std::string(stripped), text.markup);
}

Result<std::string> padding(Run& run, int64_t count, std::string_view fill) {
  std::string out;
  if (count <= 0) return out;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(count), fill.size(), &bytes)) bytes = ~uint64_t{0};
  TRY_VOID(run.reserve(bytes));
  TRY_VOID(run.step(static_cast<uint64_t>(count) / 8));
  for (int64_t i = 0; i < count; ++i) out += fill;
  return out;
}

struct Field {
  int64_t width = 0;
  std::string fill = " ";
};

Result<Field> field(Run& run, std::string_view what, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only(what, arguments, 1, 2));
  Field made;
  TRY(int64_t width, to_integer(arguments.positional[0], "the width"));
  made.width = std::max<int64_t>(width, 0);
  if (arguments.positional.size() > 1) {
    TRY(std::string_view fill, to_text(arguments.positional[1], "the fill character"));
    made.fill = fill;
    if (self.as<Text>().markup) {
      TRY(made.fill, escaped(run, arguments.positional[1]));
    }
    if (count_code_points(made.fill) != 1) return fail("The fill character must be exactly one character long");
  }
  return made;
}

Result<Value> justify(Run& run, std::string_view what, const Value& self, Arguments& arguments, bool left) {
  TRY(Field into, field(run, what, self, arguments));
  const auto& text = self.as<Text>();
  TRY(std::string gap, padding(run, into.width - static_cast<int64_t>(text.length()), into.fill));
  return run.heap.text(left ? text.bytes_utf8 + gap : gap + text.bytes_utf8, text.markup);
}

Result<Value> center(Run& run, const Value& self, Arguments& arguments) {
  TRY(Field into, field(run, "center", self, arguments));
  TRY(std::string out, center_text(run, text_of(self), into.width, into.fill));
  return run.heap.text(std::move(out), self.as<Text>().markup);
}

Result<Value> zero_fill(Run& run, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("zfill", arguments, 1, 1));
  TRY(int64_t width, to_integer(arguments.positional[0], "the width"));
  const auto& text = self.as<Text>();
  TRY(std::string gap, padding(run, std::max<int64_t>(width, 0) - static_cast<int64_t>(text.length()), "0"));
  bool has_sign = text.bytes_utf8.starts_with('-') || text.bytes_utf8.starts_with('+');
  std::string out = text.bytes_utf8;
  out.insert(has_sign ? 1 : 0, gap);
  return run.heap.text(std::move(out), text.markup);
}

Result<Value> expand_tabs(Run& run, const Value& self, Arguments& arguments) {
  static constexpr std::string_view kParameters[] = {"tabsize"};
  TRY(Values bound_to, bind_arguments("expandtabs", arguments, kParameters, 0));
  TRY(int64_t size, to_integer_or(bound_to[0], "the tab size", 8));
  std::string_view text = text_of(self);
  TRY_VOID(run.read_bytes(text.size()));
  std::string out;
  int64_t column = 0;
  for (size_t i = 0; i < text.size();) {
    size_t start = i;
    char32_t c = next_code_point(text, i);
    if (c == '\t') {
      int64_t gap = size > 0 ? size - column % size : 0;
      TRY(std::string spaces, padding(run, gap, " "));
      TRY_VOID(run.room_for(out.size() + spaces.size()));
      out += spaces;
      column += gap;
    } else {
      out += text.substr(start, i - start);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return run.heap.text(std::move(out), self.as<Text>().markup);
}

bool is_ascii_character(char32_t c) { return c < 0x80; }

constexpr Builtin kMethods[] = {
    {"upper", [](Run& r, const Value& s, Arguments& a) { return map_case(r, "upper", s, a, upper); }},
    {"lower", [](Run& r, const Value& s, Arguments& a) { return map_case(r, "lower", s, a, lower); }},
    {"title", [](Run& r, const Value& s, Arguments& a) { return map_case(r, "title", s, a, title); }},
    {"capitalize", [](Run& r, const Value& s, Arguments& a) { return map_case(r, "capitalize", s, a, capitalize); }},
    {"swapcase", [](Run& r, const Value& s, Arguments& a) { return map_case(r, "swapcase", s, a, swap_case); }},
    {"casefold", [](Run& r, const Value& s, Arguments& a) { return map_case(r, "casefold", s, a, case_fold, false); }},
    {"strip", [](Run& r, const Value& s, Arguments& a) { return strip_method(r, "strip", s, a, true, true); }},
    {"lstrip", [](Run& r, const Value& s, Arguments& a) { return strip_method(r, "lstrip", s, a, true, false); }},
    {"rstrip", [](Run& r, const Value& s, Arguments& a) { return strip_method(r, "rstrip", s, a, false, true); }},
    {"ljust", [](Run& r, const Value& s, Arguments& a) { return justify(r, "ljust", s, a, true); }},
    {"rjust", [](Run& r, const Value& s, Arguments& a) { return justify(r, "rjust", s, a, false); }},
    {"center", center},
    {"zfill", zero_fill},
    {"expandtabs", expand_tabs},
    {"isalpha", [](Run& r, const Value& s, Arguments& a) { return all_are(r, "isalpha", s, a, is_alpha); }},
    {"isalnum", [](Run& r, const Value& s, Arguments& a) { return all_are(r, "isalnum", s, a, is_alnum); }},
    {"isdecimal", [](Run& r, const Value& s, Arguments& a) { return all_are(r, "isdecimal", s, a, is_decimal); }},
    {"isdigit", [](Run& r, const Value& s, Arguments& a) { return all_are(r, "isdigit", s, a, is_digit); }},
    {"isnumeric", [](Run& r, const Value& s, Arguments& a) { return all_are(r, "isnumeric", s, a, is_numeric); }},
    {"isspace", [](Run& r, const Value& s, Arguments& a) { return all_are(r, "isspace", s, a, is_space); }},
    {"isascii",
     [](Run& r, const Value& s, Arguments& a) { return all_are(r, "isascii", s, a, is_ascii_character, true); }},
    {"isprintable",
     [](Run& r, const Value& s, Arguments& a) { return all_are(r, "isprintable", s, a, is_printable, true); }},
    {"islower", [](Run& r, const Value& s, Arguments& a) { return is_all_case(r, "islower", s, a, true); }},
    {"isupper", [](Run& r, const Value& s, Arguments& a) { return is_all_case(r, "isupper", s, a, false); }},
    {"istitle", is_title_case},
    {"isidentifier", is_identifier},
};

}  // namespace

std::span<const Builtin> text_shape_methods() { return kMethods; }

Result<std::string> center_text(Run& run, std::string_view text, int64_t width, std::string_view fill) {
  width = std::max<int64_t>(width, 0);
  int64_t gap = width - static_cast<int64_t>(count_code_points(text));
  if (gap <= 0) return std::string(text);
  int64_t left = gap / 2 + (gap & width & 1);
  TRY(std::string before, padding(run, left, fill));
  TRY(std::string after, padding(run, gap - left, fill));
  return before + std::string(text) + after;
}

std::string_view strip_text(std::string_view text, const std::string_view* characters, bool left, bool right) {
  if (characters == nullptr) {
    if (left) text = strip_left(text);
    return right ? strip_right(text) : text;
  }
  std::vector<char32_t> set;
  for (size_t i = 0; i < characters->size();) set.push_back(next_code_point(*characters, i));
  std::sort(set.begin(), set.end());
  auto strips = [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); };
  size_t start = 0, end = text.size();
  while (left && start < end) {
    size_t next = start;
    if (!strips(next_code_point(text, next))) break;
    start = next;
  }
  while (right && end > start) {
    size_t before = end;
    if (!strips(previous_code_point(text, before))) break;
    end = before;
  }
  return text.substr(start, end - start);
}

}  // namespace millrace::jinja
