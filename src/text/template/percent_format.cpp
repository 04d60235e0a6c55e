#include "text/template/percent_format.h"

#include <cmath>

#include "text/template/code_points.h"
#include "text/template/convert.h"
#include "text/template/number_format.h"
#include "text/template/operators.h"

namespace millrace::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Run& run, const Value& format, const Value& arguments)
      : run_(run), text_(text_of(format)), markup_(format.as<Text>().markup), arguments_(arguments) {}

  Result<Value> format() {
    while (i_ < text_.size()) {
      size_t percent = text_.find('%', i_);
      out_ += text_.substr(i_, percent == std::string_view::npos ? percent : percent - i_);
      if (percent == std::string_view::npos) break;
      i_ = percent + 1;
      TRY_VOID(run_.step());
      TRY_VOID(format_one());
      TRY_VOID(run_.room_for(out_.size()));
    }
    TRY_VOID(run_.move_bytes(out_.size()));
    bool mapping = arguments_.is(Type::dict) || arguments_.is(Type::list) || arguments_.is(Type::range) ||
                   arguments_.is_undefined();
    size_t given = arguments_.is(Type::tuple) ? items_of(arguments_).size() : mapping ? 0 : 1;
    if (!by_name_ && used_ < given) return fail("not all arguments converted during string formatting");
    return run_.heap.text(std::move(out_), markup_);
  }

 private:
  Result<Value> next_argument() {
    if (arguments_.is(Type::tuple)) {
      const Values& items = items_of(arguments_);
      if (used_ >= items.size()) return fail("not enough arguments for format string");
      return items[used_++];
    }
    if (used_ > 0) return fail("not enough arguments for format string");
    ++used_;
    return arguments_;
  }

  char current() const { return i_ < text_.size() ? text_[i_] : '\0'; }

  Result<Value> named_argument() {
    size_t depth = 1, start = ++i_;
    while (i_ < text_.size() && depth > 0) {
      depth += text_[i_] == '(' ? 1 : 0;
      depth -= text_[i_] == ')' ? 1 : 0;
      ++i_;
    }
    if (depth > 0) return fail("incomplete format key");
    if (!arguments_.is(Type::dict)) return fail("format requires a mapping");
    by_name_ = true;
    std::string_view key = text_.substr(start, i_ - 1 - start);
    const Value* value = arguments_.as<Dict>().find(key);
    if (value == nullptr) return fail("the format's key '{}' is not there", key);
    return *value;
  }

  Result<int64_t> read_size() {
    if (current() == '*') {
      ++i_;
      TRY(Value value, next_argument());
      return to_integer(value, "*");
    }
    int64_t size = 0;
    for (; current() >= '0' && current() <= '9'; ++i_) {
      if (size > 100'000'000) return fail("width too big");
      size = size * 10 + (current() - '0');
    }
    return size;
  }

  Result<void> format_one() {
    Value value;
    if (current() == '(') {
      TRY(value, named_argument());
    }
    FormatSpec spec;
    for (; current() != '\0' && std::string_view("-+ #0").find(current()) != std::string_view::npos; ++i_) {
      if (current() == '-') spec.align = '<';
      if (current() == '+') spec.sign = '+';
      if (current() == ' ' && spec.sign != '+') spec.sign = ' ';
      if (current() == '#') spec.alternate = true;
      if (current() == '0') spec.zero = true;
    }
    TRY(spec.width, read_size());
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (current() == '.') {
      ++i_;
      TRY(spec.precision, read_size());
      spec.precision = std::max<int64_t>(spec.precision, 0);
    }
    if (current() == 'l' || current() == 'h' || current() == 'L') ++i_;
    if (i_ >= text_.size()) return fail("incomplete format");
    spec.type = text_[i_++];
    if (spec.type == '%') return out_ += '%', Result<void>();
    if (value.is_missing()) {
      TRY(value, next_argument());
    }
    return convert(value, spec);
  }

  Result<void> convert(const Value& value, FormatSpec& spec) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
        return convert_text(value, spec);
      case 'c':
        return convert_character(value, spec);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return convert_integer(value, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return convert_real(value, spec);
      default:
        return fail("unsupported format character '{}'", spec.type);
    }
  }

  Result<void> put(const std::string& sign, const std::string& body, const FormatSpec& spec) {
    TRY(std::string padded, pad(run_, sign, body, spec, '>'));
    out_ += padded;
    return {};
  }

  Result<void> convert_text(const Value& value, FormatSpec& spec) {
    std::string text;
    if (spec.type == 's') {
      TRY(text, markup_ ? escaped(run_, value) : to_str(run_, value));
    } else {
      TRY(text, to_repr(run_, value));
      if (markup_) text = escape_html(text);
    }
    if (spec.precision >= 0) text.resize(byte_offset(text, static_cast<size_t>(spec.precision)));
    spec.zero = false;
    return put("", text, spec);
  }

  Result<void> convert_character(const Value& value, FormatSpec& spec) {
    spec.zero = false;
    if (value.is_text() && value.as<Text>().length() == 1) return put("", text_of(value), spec);
    if (!value.is_integral()) return fail("%c requires int or char");
    int64_t c = value.as_integer();
    if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return fail("%c arg not in range(0x110000)");
    std::string text;
    append_code_point(text, static_cast<char32_t>(c));
    return put("", text, spec);
  }

  Result<void> convert_integer(const Value& value, FormatSpec& spec) {
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    uint64_t size = 0;
    bool negative = false;
    if (value.is(Type::natural)) {
      size = value.as_natural();
    } else if (value.is_integral() || (value.is(Type::real) && decimal)) {
      int64_t whole = 0;
      if (value.is(Type::real)) {
        TRY(whole, truncate_real(value.as_real()));
      } else {
        whole = value.as_integer();
      }
      negative = whole < 0;
      size = magnitude(whole);
    } else {
      return fail("%{} format: {} is required, not {}", spec.type, decimal ? "a real number" : "an integer",
                  type_name(value));
    }
    std::string digits = format_magnitude(size, decimal ? 'd' : spec.type);
    if (spec.precision > static_cast<int64_t>(digits.size())) {
      TRY_VOID(run_.reserve(static_cast<uint64_t>(spec.precision)));
      digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    }
    std::string sign = sign_text(negative, spec.sign);
    if (spec.alternate && !decimal) sign += std::string("0") + spec.type;
    return put(sign, digits, spec);
  }

  Result<void> convert_real(const Value& value, const FormatSpec& spec) {
    if (!value.is_number()) return fail("must be real number, not {}", type_name(value));
    double number = number_as_real(value);
    TRY(std::string digits,
        format_magnitude(std::abs(number), spec.type, spec.precision < 0 ? 6 : spec.precision, spec.alternate));
    return put(sign_text(std::signbit(number) && !std::isnan(number), spec.sign), digits, spec);
  }

  Run& run_;
  std::string_view text_;
  bool markup_;
  const Value& arguments_;
  size_t i_ = 0;
  size_t used_ = 0;
  bool by_name_ = false;
  std::string out_;
};

}  // namespace

Result<Value> percent_format(Run& run, const Value& format, const Value& arguments) {
  return PercentFormatter(run, format, arguments).format();
}

}  // namespace millrace::jinja
