#include "text/template/json_text.h"

#include <cmath>

#include "text/template/code_points.h"
#include "text/template/convert.h"
#include "text/template/sort.h"

namespace millrace::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style) : run_(run), style_(style) {}

  Result<void> write(const Value& value) {
    ENTER_LEVEL(run_);
    TRY_VOID(run_.step());
    TRY_VOID(run_.room_for(out.size()));
    switch (value.type()) {
      case Type::none:
      case Type::boolean:
      case Type::integer:
      case Type::natural:
      case Type::real:
        out += scalar(value);
        return {};
      case Type::text:
        return write_text(text_of(value));
      case Type::list:
      case Type::tuple:
        return write_items(items_of(value));
      case Type::dict:
        return write_entries(value.as<Dict>());
      default:
        return fail("Object of type {} is not JSON serializable", type_name(value));
    }
  }

  std::string out;

 private:
  static std::string scalar(const Value& value) {
    if (value.is(Type::none)) return "null";
    if (value.is(Type::boolean)) return value.as_integer() != 0 ? "true" : "false";
    if (!value.is(Type::real)) return integer_repr(value);
    double number = value.as_real();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return real_repr(number);
  }

  Result<void> write_text(std::string_view text) {
    TRY_VOID(run_.read_bytes(text.size()));
    TRY_VOID(run_.room_for(out.size() + text.size()));
    out += '"';
    for (size_t i = 0; i < text.size();) {
      size_t start = i;
      char32_t c = next_code_point(text, i);
      if (c == '"' || c == '\\') {
        out += '\\';
        out += static_cast<char>(c);
      } else if (c < 0x20) {
        write_control(c);
      } else if (c < 0x7F || !style_.ensure_ascii) {
        out += text.substr(start, i - start);
      } else if (c < 0x10000) {
        out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
      } else {
        uint32_t above = static_cast<uint32_t>(c) - 0x10000;
        out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF));
      }
    }
    out += '"';
    return {};
  }

  void write_control(char32_t c) {
    switch (c) {
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    }
  }

  Result<void> write_newline() {
    if (!style_.indent) return {};
    TRY_VOID(run_.move_bytes(level_ * style_.indent->size()));
    TRY_VOID(run_.room_for(out.size() + level_ * style_.indent->size()));
    out += '\n';
    for (size_t i = 0; i < level_; ++i) out += *style_.indent;
    return {};
  }

  Result<void> write_items(const Values& items) {
    if (items.empty()) return out += "[]", Result<void>();
    out += '[';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      TRY_VOID(write_newline());
      TRY_VOID(write(items[i]));
    }
    --level_;
    TRY_VOID(write_newline());
    out += ']';
    return {};
  }

  Result<void> write_key(const Value& key) {
    if (key.is_text()) return write_text(text_of(key));
    if (key.is_number() || key.is(Type::none)) return write_text(scalar(key));
    return fail("keys must be str, int, float, bool or None, not {}", type_name(key));
  }

  Result<void> write_entries(const Dict& dict) {
    if (dict.entries.empty()) return out += "{}", Result<void>();
    std::vector<Dict::Entry> sorted_entries;
    if (style_.sort_keys) {
      TRY(sorted_entries, sort_entries(run_, dict.entries));
    }
    const auto& entries = style_.sort_keys ? sorted_entries : dict.entries;
    out += '{';
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      TRY_VOID(write_newline());
      TRY_VOID(write_key(entries[i].first));
      out += style_.key_separator;
      TRY_VOID(write(entries[i].second));
    }
    --level_;
    TRY_VOID(write_newline());
    out += '}';
    return {};
  }

  Run& run_;
  const JsonStyle& style_;
  size_t level_ = 0;
};

}  // namespace

Result<std::string> to_json(Run& run, const Value& value, const JsonStyle& style) {
  JsonWriter writer(run, style);
  TRY_VOID(writer.write(value));
  return std::move(writer.out);
}

}  // namespace millrace::jinja
