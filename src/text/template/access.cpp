#include "text/template/access.h"

#include <algorithm>
#include <charconv>

#include "text/template/code_points.h"
#include "text/template/convert.h"
#include "text/template/loop.h"
#include "text/template/macro.h"
#include "text/template/methods.h"

namespace millrace::jinja {
namespace {

// The item itself, or missing where Python raises a TypeError or LookupError.
Result<Value> find_item(Run& run, const Value& object, const Value& key) {
  if (object.is_undefined()) return undefined_error(object);
  if (object.is(Type::dict)) {
    if (!is_hashable(key)) return Value();
    TRY_VOID(check_key(run, key));
    const Value* found = object.as<Dict>().find(key);
    return found == nullptr ? Value() : *found;
  }
  if (!key.is_integral()) return Value();
  int64_t index = key.as_integer();
  switch (object.type()) {
    case Type::list:
    case Type::tuple: {
      const Values& items = items_of(object);
      if (index < 0) index += static_cast<int64_t>(items.size());
      if (index < 0 || index >= static_cast<int64_t>(items.size())) return Value();
      return items[static_cast<size_t>(index)];
    }
    case Type::text: {
      const auto& text = object.as<Text>();
      auto count = static_cast<int64_t>(text.length());
      if (index < 0) index += count;
      if (index < 0 || index >= count) return Value();
      if (!text.is_ascii()) TRY_VOID(run.read_bytes(text.bytes_utf8.size()));
      size_t offset =
          text.is_ascii() ? static_cast<size_t>(index) : byte_offset(text.bytes_utf8, static_cast<size_t>(index));
      size_t end = offset;
      next_code_point(text.bytes_utf8, end);
      return run.heap.text(text.bytes_utf8.substr(offset, end - offset), text.markup);
    }
    case Type::range: {
      const auto& range = object.as<Range>();
      if (index < 0) index += range.count;
      if (index < 0 || index >= range.count) return Value();
      return Value::integer(range.start + index * range.step);
    }
    default:
      return Value();
  }
}

Value unsafe(Run& run, const Value& object, std::string_view name) {
  return undefined_hint(run,
                        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
}

Result<Value> macro_attribute(Run& run, const Macro& macro, std::string_view name) {
  const MacroNode& node = *macro.node;
  if (name == "name") return node.name.empty() ? Value::none() : run.heap.text(node.name);
  if (name == "catch_kwargs") return Value::boolean(node.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(node.uses_varargs);
  if (name == "caller") return Value::boolean(node.uses_caller);
  if (name == "explicit_caller") return Value::boolean(node.names_caller);
  if (name != "arguments") return Value();
  Values names;
  for (const auto& parameter : node.parameters) names.push_back(run.heap.text(parameter.name));
  return run.heap.tuple(std::move(names));
}

// What a slice selects of so many items: Python's slice.indices().
struct Selection {
  int64_t start = 0, step = 1, count = 0;
};

Result<int64_t> slice_bound(const Value& bound, int64_t otherwise) {
  if (bound.is_missing() || bound.is(Type::none)) return otherwise;
  if (!bound.is_integral()) {
    if (bound.is_undefined()) return undefined_error(bound);
    return fail("slice indices must be integers or None or have an __index__ method");
  }
  return bound.as_integer();
}

Result<Selection> select(int64_t length, const Value& start, const Value& stop, const Value& step) {
  Selection selection;
  TRY(selection.step, slice_bound(step, 1));
  if (selection.step == 0) return fail("slice step cannot be zero");
  selection.step = std::max(selection.step, -std::numeric_limits<int64_t>::max());
  const bool forwards = selection.step > 0;
  const int64_t lowest = forwards ? 0 : -1, highest = forwards ? length : length - 1;
  auto clamp = [&](int64_t bound) {
    if (bound < 0) bound += length;
    return std::clamp(bound, lowest, highest);
  };
  TRY(int64_t from, slice_bound(start, forwards ? 0 : std::numeric_limits<int64_t>::max()));
  selection.start = clamp(from);
  int64_t end = forwards ? length : -1;
  if (!stop.is_missing() && !stop.is(Type::none)) {
    TRY(int64_t to, slice_bound(stop, 0));
    end = clamp(to);
  }
  if (forwards && end > selection.start) selection.count = (end - selection.start - 1) / selection.step + 1;
  if (!forwards && end < selection.start) selection.count = (selection.start - end - 1) / -selection.step + 1;
  return selection;
}

Result<Value> slice_text(Run& run, const Text& text, const Selection& selection) {
  const std::string& bytes = text.bytes_utf8;
  TRY_VOID(selection.step == 1 && text.is_ascii() ? run.move_bytes(bytes.size()) : run.read_bytes(bytes.size()));
  if (selection.count == 0) return run.heap.text("", text.markup);
  if (selection.step == 1) {
    auto start = static_cast<size_t>(selection.start), count = static_cast<size_t>(selection.count);
    if (text.is_ascii()) return run.heap.text(bytes.substr(start, count), text.markup);
    size_t offset = byte_offset(bytes, start);
    size_t length = byte_offset(std::string_view(bytes).substr(offset), count);
    return run.heap.text(bytes.substr(offset, length), text.markup);
  }
  TRY_VOID(run.room_for(text.length() * sizeof(size_t)));
  std::vector<size_t> offsets;
  for (size_t i = 0; i < bytes.size();) {
    offsets.push_back(i);
    next_code_point(bytes, i);
  }
  offsets.push_back(bytes.size());
  std::string out;
  for (int64_t i = 0; i < selection.count; ++i) {
    auto at = static_cast<size_t>(selection.start + i * selection.step);
    out.append(bytes, offsets[at], offsets[at + 1] - offsets[at]);
  }
  return run.heap.text(std::move(out), text.markup);
}

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Result<Value> find_attribute(Run& run, const Value& object, std::string_view name) {
  if (object.is(Type::space)) {
    const Value* found = object.as<Space>().find(name);
    if (found == nullptr) return Value();
    return name.starts_with('_') ? unsafe(run, object, name) : *found;
  }
  // Python's own attributes, which exist on everything.
  if (name.starts_with("__") && name.ends_with("__") && name.size() > 4) return unsafe(run, object, name);
  if (is_mutator(object, name)) return unsafe(run, object, name);
  if (object.is(Type::loop)) return object.as<Loop>().attribute(run, object, name);
  if (object.is(Type::macro)) return macro_attribute(run, object.as<Macro>(), name);
  return find_method(run, object, name);
}

Result<Value> get_attribute(Run& run, const Value& object, std::string_view name) {
  if (object.is_undefined()) return undefined_error(object);
  TRY(Value found, find_attribute(run, object, name));
  if (!found.is_missing()) return found;
  if (object.is(Type::dict)) {
    const Value* item = object.as<Dict>().find(name);
    if (item != nullptr) return *item;
  }
  return undefined_attribute(run, object, name);
}

Result<Value> get_item(Run& run, const Value& object, const Value& key) {
  TRY(Value item, find_item(run, object, key));
  if (!item.is_missing()) return item;
  if (key.is_text()) {
    TRY_VOID(run.move_bytes(text_of(key).size()));
    TRY(Value found, find_attribute(run, object, text_of(key)));
    if (!found.is_missing()) return found;
    return undefined_attribute(run, object, text_of(key));
  }
  TRY(std::string repr, to_repr(run, key));
  Value made = undefined_attribute(run, object, repr);
  made.as<Undefined>().key_is_text = false;
  return made;
}

Result<Value> get_slice(Run& run, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) return undefined_error(object);
  if (object.is(Type::dict)) return fail("unhashable type: 'slice'");
  if (!object.is_text() && !object.is(Type::list) && !object.is(Type::tuple) && !object.is(Type::range)) {
    return fail("'{}' object is not subscriptable", type_name(object));
  }
  TRY(int64_t count, length(run, object));
  TRY(Selection selection, select(count, start, stop, step));
  if (object.is_text()) return slice_text(run, object.as<Text>(), selection);
  if (object.is(Type::range)) {
    const auto& range = object.as<Range>();
    int64_t from = range.start + selection.start * range.step;
    int64_t by = 0, to = 0;
    if (__builtin_mul_overflow(range.step, selection.step, &by) || __builtin_mul_overflow(by, selection.count, &to) ||
        __builtin_add_overflow(from, to, &to)) {
      return fail("the slice of a range does not fit 64 bits");
    }
    return Value(run.heap.make<Range>(0, from, to, by, selection.count));
  }
  TRY_VOID(run.reserve(static_cast<uint64_t>(selection.count) * sizeof(Value)));
  TRY_VOID(run.step(static_cast<uint64_t>(selection.count)));
  const Values& items = items_of(object);
  Values out;
  out.reserve(static_cast<size_t>(selection.count));
  for (int64_t i = 0; i < selection.count; ++i) {
    out.push_back(items[static_cast<size_t>(selection.start + i * selection.step)]);
  }
  return object.is(Type::list) ? run.heap.list(std::move(out)) : run.heap.tuple(std::move(out));
}

Result<AttributePath> AttributePath::parse_part(Run& run, std::string_view path) {
  AttributePath made;
  for (size_t start = 0; start <= path.size();) {
    size_t end = std::min(path.find('.', start), path.size());
    std::string_view part = path.substr(start, end - start);
    int64_t index = 0;
    auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    TRY_VOID(run.step());
    bool is_index = is_digits(part) && parsed.ec == std::errc();
    made.parts_.push_back(is_index ? Value::integer(index) : run.heap.text(std::string(part)));
    start = end + 1;
  }
  return made;
}

Result<AttributePath> AttributePath::parse(Run& run, const Value& attribute) {
  if (attribute.is_text()) return parse_part(run, text_of(attribute));
  AttributePath made;
  if (!attribute.is_missing() && !attribute.is(Type::none)) made.parts_.push_back(attribute);
  return made;
}

Result<Value> AttributePath::get(Run& run, const Value& from, const Value& otherwise) const {
  Value value = from;
  for (const Value& part : parts_) {
    TRY_VOID(run.step());
    TRY(value, get_item(run, value, part));
    if (value.is_undefined() && !otherwise.is_missing() && !otherwise.is(Type::none)) value = otherwise;
  }
  return value;
}

}  // namespace millrace::jinja
