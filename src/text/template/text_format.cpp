#include "text/template/text_format.h"

#include <algorithm>
#include <charconv>

#include "text/template/access.h"
#include "text/template/convert.h"
#include "text/template/number_format.h"
#include "text/template/operators.h"

namespace millrace::jinja {
namespace {

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class TextFormatter {
 public:
  TextFormatter(Run& run, bool markup, const Arguments& arguments, const Value& keywords)
      : run_(run), markup_(markup), arguments_(arguments), keywords_(keywords) {}

  // Fields may stand inside a field's specification, two levels deep.
  Result<std::string> format(std::string_view text, int levels) {
    if (levels < 0) return fail("Max string recursion exceeded");
    std::string out;
    for (size_t i = 0; i < text.size();) {
      char c = text[i];
      if ((c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c) {
        out += c;
        i += 2;
      } else if (c == '}') {
        return fail("Single '}}' encountered in format string");
      } else if (c == '{') {
        TRY(std::string field, format_field(text, i, levels));
        out += field;
      } else {
        size_t end = std::min(text.find_first_of("{}", i), text.size());
        out += text.substr(i, end - i);
        i = end;
      }
      TRY_VOID(run_.step());
      TRY_VOID(run_.room_for(out.size()));
    }
    return out;
  }

 private:
  // One field from its opening brace on; i moves behind its closing one.
  Result<std::string> format_field(std::string_view text, size_t& i, int levels) {
    size_t start = ++i;
    int depth = 1;
    size_t colon = std::string_view::npos, bang = std::string_view::npos;
    bool in_bracket = false;
    for (; i < text.size(); ++i) {
      char c = text[i];
      if (c == '{') ++depth;
      if (c == '}' && --depth == 0) break;
      if (colon != std::string_view::npos) continue;
      in_bracket = c == '[' || (in_bracket && c != ']');
      if (in_bracket) continue;
      if (c == '{') return fail("unexpected '{{' in field name");
      if (c == ':') colon = i;
      if (c == '!' && bang == std::string_view::npos) bang = i;
    }
    if (i >= text.size()) return fail("expected '}}' before end of string");
    size_t end = i++;
    size_t name_end = std::min({bang, colon, end});
    char conversion = '\0';
    if (bang < std::min(colon, end)) {
      if (std::min(colon, end) != bang + 2) return fail("expected ':' after conversion specifier");
      conversion = text[bang + 1];
    }
    TRY(Value value, field_value(text.substr(start, name_end - start)));
    TRY(value, convert(value, conversion));
    std::string spec;
    if (colon != std::string_view::npos) {
      TRY(spec, format(text.substr(colon + 1, end - colon - 1), levels - 1));
    }
    return finish(value, spec);
  }

  Result<std::string> finish(const Value& value, const std::string& spec) {
    if (!markup_) return format_value(run_, value, spec);
    if (value.is_text() && value.as<Text>().markup) {
      if (!spec.empty()) return fail("Unsupported format specification for Markup.");
      return text_of(value);
    }
    TRY(std::string text, format_value(run_, value, spec));
    return escape_html(text);
  }

  Result<Value> convert(const Value& value, char conversion) {
    if (conversion == '\0') return value;
    if (conversion != 's' && conversion != 'r' && conversion != 'a') {
      return fail("Unknown conversion specifier {}", conversion);
    }
    TRY(std::string text, conversion == 's' ? to_str(run_, value) : to_repr(run_, value));
    return run_.heap.text(std::move(text));
  }

  Result<Value> first_value(std::string_view name) {
    if (is_digits(name)) {
      size_t index = 0;
      auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
      if (parsed.ec != std::errc() || index >= arguments_.positional.size()) {
        return fail("Replacement index {} out of range for positional args tuple", name);
      }
      return arguments_.positional[index];
    }
    if (keywords_.is(Type::dict)) {
      const Value* value = keywords_.as<Dict>().find(name);
      if (value == nullptr) return fail("the format's key '{}' is not there", name);
      return *value;
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    return fail("the format's key '{}' is not there", name);
  }

  Result<Value> field_value(std::string_view name) {
    std::string automatic;
    size_t first_end = std::min(name.find_first_of(".["), name.size());
    if (name.empty()) {
      if (numbering_ == Numbering::manual) {
        return fail("cannot switch from manual field specification to automatic field numbering");
      }
      numbering_ = Numbering::automatic;
      automatic = fmt::format("{}", next_index_++);
      return first_value(automatic);
    }
    if (is_digits(name)) {
      if (numbering_ == Numbering::automatic) {
        return fail("cannot switch from manual field specification to automatic field numbering");
      }
      numbering_ = Numbering::manual;
    }
    TRY(Value value, first_value(name.substr(0, first_end)));
    for (size_t i = first_end; i < name.size();) {
      if (name[i] == '.') {
        size_t end = std::min(name.find_first_of(".[", i + 1), name.size());
        if (end == i + 1) return fail("Empty attribute in format string");
        TRY(value, get_attribute(run_, value, name.substr(i + 1, end - i - 1)));
        i = end;
      } else if (name[i] == '[') {
        size_t end = name.find(']', i);
        if (end == std::string_view::npos) return fail("Missing ']' in format string");
        TRY(value, item(value, name.substr(i + 1, end - i - 1)));
        i = end + 1;
      } else {
        return fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Result<Value> item(const Value& value, std::string_view key) {
    if (key.empty()) return fail("Empty attribute in format string");
    if (!is_digits(key)) return get_item(run_, value, run_.heap.text(std::string(key)));
    int64_t index = 0;
    auto parsed = std::from_chars(key.data(), key.data() + key.size(), index);
    if (parsed.ec != std::errc()) return fail("Too many decimal digits in format string");
    return get_item(run_, value, Value::integer(index));
  }

  enum class Numbering { unknown, automatic, manual };

  Run& run_;
  bool markup_;
  const Arguments& arguments_;
  const Value& keywords_;
  Numbering numbering_ = Numbering::unknown;
  size_t next_index_ = 0;
};

}  // namespace

Result<Value> text_format(Run& run, const Value& format, const Arguments& arguments, const Value& keywords) {
  const bool markup = format.as<Text>().markup;
  TRY(std::string out, TextFormatter(run, markup, arguments, keywords).format(text_of(format), 1));
  return run.heap.text(std::move(out), markup);
}

}  // namespace millrace::jinja
