#include <algorithm>

#include "text/template/code_points.h"
#include "text/template/convert.h"
#include "text/template/iterate.h"
#include "text/template/methods.h"
#include "text/template/operators.h"
#include "text/template/text_format.h"

namespace millrace::jinja {
namespace {

// The part of a text that start and end arguments select, both counted in code points as Python counts them.
struct Window {
  bool valid = true;  // false: start lies behind the end, nothing is found there, not even an empty text
  size_t start = 0;   // in code points
  size_t offset = 0;  // the same in bytes
  std::string_view inside;
};

Result<Window> window(Run& run, const Text& text, const Values& arguments, size_t first) {
  TRY_VOID(run.read_bytes(text.bytes_utf8.size()));
  auto size = static_cast<int64_t>(text.length());
  auto bound = [&](size_t i, int64_t otherwise) -> Result<int64_t> {
    if (arguments.size() <= i || arguments[i].is(Type::none)) return otherwise;
    TRY(int64_t given, to_integer(arguments[i], "slice index"));
    return given < 0 ? std::max<int64_t>(given + size, 0) : given;
  };
  TRY(int64_t start, bound(first, 0));
  TRY(int64_t stop, bound(first + 1, size));
  stop = std::min(stop, size);
  Window made;
  made.valid = start <= stop;
  if (!made.valid) return made;
  made.start = static_cast<size_t>(start);
  std::string_view bytes = text.bytes_utf8;
  made.offset = byte_offset(bytes, made.start);
  made.inside = bytes.substr(made.offset);
  if (stop < size) made.inside = made.inside.substr(0, byte_offset(made.inside, static_cast<size_t>(stop - start)));
  return made;
}

Result<std::optional<int64_t>> find(Run& run, std::string_view what, const Value& self, Arguments& arguments,
                                    bool last) {
  TRY_VOID(positional_only(what, arguments, 1, 3));
  TRY(std::string_view needle, to_text(arguments.positional[0], what));
  TRY(Window in, window(run, self.as<Text>(), arguments.positional, 1));
  if (!in.valid) return std::optional<int64_t>();
  auto found = last ? find_last(in.inside, needle) : find_first(in.inside, needle);
  if (!found) return std::optional<int64_t>();
  return std::optional<int64_t>(static_cast<int64_t>(in.start + count_code_points(in.inside.substr(0, *found))));
}

Result<Value> find_or_minus_one(Run& run, std::string_view what, const Value& self, Arguments& arguments, bool last) {
  TRY(auto found, find(run, what, self, arguments, last));
  return Value::integer(found.value_or(-1));
}

Result<Value> find_or_fail(Run& run, std::string_view what, const Value& self, Arguments& arguments, bool last) {
  TRY(auto found, find(run, what, self, arguments, last));
  if (!found) return fail("substring not found");
  return Value::integer(*found);
}

Result<Value> count(Run& run, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("count", arguments, 1, 3));
  TRY(std::string_view needle, to_text(arguments.positional[0], "count"));
  TRY(Window in, window(run, self.as<Text>(), arguments.positional, 1));
  if (!in.valid) return Value::integer(0);
  if (needle.empty()) return Value::integer(static_cast<int64_t>(count_code_points(in.inside)) + 1);
  int64_t times = 0;
  for (auto at = find_first(in.inside, needle); at; at = find_first(in.inside, needle, *at + needle.size())) ++times;
  return Value::integer(times);
}

Result<Value> starts_or_ends(Run& run, std::string_view what, const Value& self, Arguments& arguments, bool ends) {
  TRY_VOID(positional_only(what, arguments, 1, 3));
  TRY(Window in, window(run, self.as<Text>(), arguments.positional, 1));
  auto matches = [&](const Value& affix) -> Result<bool> {
    if (!affix.is_text()) {
      return fail("{} first arg must be str or a tuple of str, not {}", what, type_name(affix));
    }
    TRY_VOID(run.move_bytes(text_of(affix).size()));
    if (!in.valid) return false;
    return ends ? in.inside.ends_with(text_of(affix)) : in.inside.starts_with(text_of(affix));
  };
  const Value& affix = arguments.positional[0];
  if (!affix.is(Type::tuple)) {
    TRY(bool matched, matches(affix));
    return Value::boolean(matched);
  }
  for (const Value& each : items_of(affix)) {
    TRY(bool matched, matches(each));
    if (matched) return Value::boolean(true);
  }
  return Value::boolean(false);
}

Result<Value> remove_affix(Run& run, std::string_view what, const Value& self, Arguments& arguments, bool suffix) {
  TRY_VOID(positional_only(what, arguments, 1, 1));
  TRY(std::string_view affix, to_text(arguments.positional[0], what));
  std::string_view text = text_of(self);
  TRY_VOID(run.move_bytes(text.size()));
  if (suffix ? text.ends_with(affix) : text.starts_with(affix)) {
    text = suffix ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size());
  }
  return run.heap.text(std::string(text));
}

Result<Value> replace(Run& run, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("replace", arguments, 2, 3));
  int64_t limit = -1;
  if (arguments.positional.size() > 2) {
    TRY(limit, to_integer(arguments.positional[2], "the count of replace"));
  }
  TRY(std::string_view from, to_text(arguments.positional[0], "replace() argument 1"));
  TRY(std::string_view to, to_text(arguments.positional[1], "replace() argument 2"));
  const bool markup = self.as<Text>().markup;
  std::string escaped_from, escaped_to;
  if (markup) {
    TRY(escaped_from, escaped(run, arguments.positional[0]));
    TRY(escaped_to, escaped(run, arguments.positional[1]));
    from = escaped_from;
    to = escaped_to;
  }
  TRY(std::string out, replace_text(run, text_of(self), from, to, limit));
  return run.heap.text(std::move(out), markup);
}

Result<Value> join(Run& run, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("join", arguments, 1, 1));
  const auto& separator = self.as<Text>();
  std::string out;
  int64_t index = 0;
  TRY_VOID(for_each(run, arguments.positional[0], [&](Value item) -> Result<void> {
    if (index > 0) out += separator.bytes_utf8;
    if (separator.markup) {
      TRY(std::string text, escaped(run, item));
      out += text;
    } else if (item.is_text()) {
      out += text_of(item);
      TRY_VOID(run.move_bytes(text_of(item).size() + separator.bytes_utf8.size()));
    } else {
      return fail("sequence item {}: expected str instance, {} found", index, type_name(item));
    }
    ++index;
    return run.room_for(out.size());
  }));
  return run.heap.text(std::move(out), separator.markup);
}

Result<Value> format(Run& run, const Value& self, Arguments& arguments) {
  return text_format(run, self, arguments, Value());
}

Result<Value> format_map(Run& run, const Value& self, Arguments& arguments) {
  TRY_VOID(positional_only("format_map", arguments, 1, 1));
  Value mapping = arguments.positional[0];
  if (!mapping.is(Type::dict)) return fail("format_map() wants a dict, not '{}'", type_name(mapping));
  return text_format(run, self, Arguments(), mapping);
}

Result<Value> unavailable(Run&, const Value&, Arguments&) {
  return fail("this method of str is not available in templates");
}

constexpr Builtin kMethods[] = {
    {"find", [](Run& r, const Value& s, Arguments& a) { return find_or_minus_one(r, "find", s, a, false); }},
    {"rfind", [](Run& r, const Value& s, Arguments& a) { return find_or_minus_one(r, "rfind", s, a, true); }},
    {"index", [](Run& r, const Value& s, Arguments& a) { return find_or_fail(r, "index", s, a, false); }},
    {"rindex", [](Run& r, const Value& s, Arguments& a) { return find_or_fail(r, "rindex", s, a, true); }},
    {"count", count},
    {"startswith", [](Run& r, const Value& s, Arguments& a) { return starts_or_ends(r, "startswith", s, a, false); }},
    {"endswith", [](Run& r, const Value& s, Arguments& a) { return starts_or_ends(r, "endswith", s, a, true); }},
    {"removeprefix", [](Run& r, const Value& s, Arguments& a) { return remove_affix(r, "removeprefix", s, a, false); }},
    {"removesuffix", [](Run& r, const Value& s, Arguments& a) { return remove_affix(r, "removesuffix", s, a, true); }},
    {"replace", replace},
    {"join", join},
    {"format", format},
    {"format_map", format_map},
    {"encode", unavailable},
    {"translate", unavailable},
    {"maketrans", unavailable},
};

}  // namespace

std::span<const Builtin> text_search_methods() { return kMethods; }

Result<std::string> replace_text(Run& run, std::string_view text, std::string_view from, std::string_view to,
                                 int64_t count) {
  TRY_VOID(run.read_bytes(text.size()));
  auto left = count < 0 ? std::numeric_limits<uint64_t>::max() : static_cast<uint64_t>(count);
  std::string out;
  if (from.empty()) {
    // Between all characters, and at both ends.
    uint64_t places = std::min<uint64_t>(left, count_code_points(text) + 1);
    uint64_t added = 0;
    if (__builtin_mul_overflow(places, to.size(), &added)) added = std::numeric_limits<uint64_t>::max() / 2;
    TRY_VOID(run.reserve(text.size() + added));
    size_t i = 0;
    for (; places > 0; --places) {
      out += to;
      if (i >= text.size()) break;
      size_t start = i;
      next_code_point(text, i);
      out += text.substr(start, i - start);
    }
    out += text.substr(std::min(i, text.size()));
    return out;
  }
  size_t i = 0;
  for (auto at = find_first(text, from); at && left > 0; at = find_first(text, from, i), --left) {
    out += text.substr(i, *at - i);
    out += to;
    i = *at + from.size();
    TRY_VOID(run.step(1 + to.size() / 512));
    TRY_VOID(run.room_for(out.size() + text.size() - i));
  }
  out += text.substr(i);
  return out;
}

}  // namespace millrace::jinja
