#include "base/json.h"

#include <boost/json/src.hpp>

namespace millrace {
namespace {

namespace bj = boost::json;

// Counts keys while a text is scanned, without building anything. Boost keeps the last of two equal keys, so a text has
// a duplicate exactly if it has more keys than the parsed value.
struct KeyCounter {
  static constexpr size_t max_object_size = size_t(-1);
  static constexpr size_t max_array_size = size_t(-1);
  static constexpr size_t max_key_size = size_t(-1);
  static constexpr size_t max_string_size = size_t(-1);
  size_t keys = 0;
  using ec = bj::error_code;
  bool on_document_begin(ec&) { return true; }
  bool on_document_end(ec&) { return true; }
  bool on_object_begin(ec&) { return true; }
  bool on_object_end(size_t, ec&) { return true; }
  bool on_array_begin(ec&) { return true; }
  bool on_array_end(size_t, ec&) { return true; }
  bool on_key_part(bj::string_view, size_t, ec&) { return true; }
  bool on_key(bj::string_view, size_t, ec&) { return ++keys, true; }
  bool on_string_part(bj::string_view, size_t, ec&) { return true; }
  bool on_string(bj::string_view, size_t, ec&) { return true; }
  bool on_number_part(bj::string_view, ec&) { return true; }
  bool on_int64(int64_t, bj::string_view, ec&) { return true; }
  bool on_uint64(uint64_t, bj::string_view, ec&) { return true; }
  bool on_double(double, bj::string_view, ec&) { return true; }
  bool on_bool(bool, ec&) { return true; }
  bool on_null(ec&) { return true; }
  bool on_comment_part(bj::string_view, ec&) { return true; }
  bool on_comment(bj::string_view, ec&) { return true; }
};

size_t count_keys(const Json& value) {
  size_t keys = 0;
  if (const auto* object = value.if_object()) {
    keys += object->size();
    for (const auto& member : *object) keys += count_keys(member.value());
  } else if (const auto* array = value.if_array()) {
    for (const auto& item : *array) keys += count_keys(item);
  }
  return keys;
}

Error wrong_type(std::string_view key, std::string_view wanted, const Json& found) {
  std::string text = to_text(found);
  if (text.size() > 40) text = text.substr(0, 40) + "...";
  return error(Code::invalid, "'{}' should be {}, but is {}", key, wanted, text);
}

void write_pretty(const Json& value, std::string& out, size_t indent) {
  const std::string inner(indent + 2, ' ');
  if (const auto* object = value.if_object(); object != nullptr && !object->empty()) {
    out += "{\n";
    bool first = true;
    for (const auto& member : *object) {
      if (!first) out += ",\n";
      first = false;
      out += inner + bj::serialize(bj::string(member.key())) + ": ";
      write_pretty(member.value(), out, indent + 2);
    }
    out += "\n" + std::string(indent, ' ') + "}";
  } else if (const auto* array = value.if_array(); array != nullptr && !array->empty()) {
    out += "[\n";
    bool first = true;
    for (const auto& item : *array) {
      if (!first) out += ",\n";
      first = false;
      out += inner;
      write_pretty(item, out, indent + 2);
    }
    out += "\n" + std::string(indent, ' ') + "]";
  } else {
    out += bj::serialize(value);
  }
}

// JSON has no infinity and no NaN: outside of strings they become a number too large for a double, and null.
std::string without_python_numbers(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  while (!text.empty()) {
    size_t taken = 1;
    if (in_string && text[0] == '\\') {
      taken = std::min<size_t>(text.size(), 2);
    } else if (text[0] == '"') {
      in_string = !in_string;
    } else if (!in_string && text.starts_with("Infinity")) {
      out += "1e999";
      text.remove_prefix(8);
      continue;
    } else if (!in_string && text.starts_with("NaN")) {
      out += "null";
      text.remove_prefix(3);
      continue;
    }
    out += text.substr(0, taken);
    text.remove_prefix(taken);
  }
  return out;
}

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits, bj::storage_ptr storage) {
  if (text.size() > limits.max_bytes) {
    return error(Code::invalid, "JSON of {} bytes is larger than the limit of {}", text.size(), limits.max_bytes);
  }
  std::string rewritten;
  if (limits.python_numbers &&
      (text.find("Infinity") != std::string_view::npos || text.find("NaN") != std::string_view::npos)) {
    rewritten = without_python_numbers(text);
    text = rewritten;
  }
  bj::parse_options options;
  options.max_depth = limits.max_depth;
  bj::error_code failure;
  bj::parser parser({}, options);
  parser.reset(std::move(storage));
  size_t used = parser.write(bj::string_view(text.data(), text.size()), failure);
  if (failure) return error(Code::invalid, "not valid JSON at byte {}: {}", used, failure.message());
  Json value = parser.release();
  if (limits.refuse_duplicate_keys) {
    bj::basic_parser<KeyCounter> counter(options);
    bj::error_code ignored;
    counter.write_some(false, text.data(), used, ignored);
    if (counter.handler().keys != count_keys(value))
      return error(Code::invalid, "the JSON has a key twice in one object");
  }
  return value;
}

std::string to_text(const Json& json) { return bj::serialize(json); }

std::string to_pretty_text(const Json& json) {
  std::string out;
  write_pretty(json, out, 0);
  return out;
}

const Json* find(const JsonObject& object, std::string_view key) {
  const Json* value = object.if_contains(bj::string_view(key.data(), key.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

const Json* find(const Json& object, std::string_view key) {
  return object.is_object() ? find(object.get_object(), key) : nullptr;
}

Result<int64_t> get_int(const Json& object, std::string_view key, int64_t otherwise) {
  const Json* value = find(object, key);
  if (value == nullptr) return otherwise;
  if (value->is_int64()) return value->get_int64();
  if (value->is_double()) {
    double number = value->get_double();
    if (number >= -9e15 && number <= 9e15 && number == static_cast<double>(static_cast<int64_t>(number))) {
      return static_cast<int64_t>(number);
    }
  }
  return wrong_type(key, "a whole number", *value);
}

Result<double> get_number(const Json& object, std::string_view key, double otherwise) {
  const Json* value = find(object, key);
  if (value == nullptr) return otherwise;
  if (value->is_int64()) return static_cast<double>(value->get_int64());
  if (value->is_uint64()) return static_cast<double>(value->get_uint64());
  if (value->is_double()) return value->get_double();
  return wrong_type(key, "a number", *value);
}

Result<bool> get_bool(const Json& object, std::string_view key, bool otherwise) {
  const Json* value = find(object, key);
  if (value == nullptr) return otherwise;
  if (value->is_bool()) return value->get_bool();
  return wrong_type(key, "true or false", *value);
}

Result<std::string> get_string(const Json& object, std::string_view key, std::string_view otherwise) {
  const Json* value = find(object, key);
  if (value == nullptr) return std::string(otherwise);
  if (value->is_string()) return std::string(value->get_string());
  return wrong_type(key, "a string", *value);
}

}  // namespace millrace
