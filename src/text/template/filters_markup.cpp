// Filters about HTML and URLs. Prompts seldom need them, but they are part of Jinja.
#include <algorithm>
#include <charconv>

#include "text/template/code_points.h"
#include "text/template/convert.h"
#include "text/template/filters.h"
#include "text/template/iterate.h"
#include "text/template/methods.h"
#include "text/template/operators.h"

namespace millrace::jinja {
namespace {

Result<Value> escape(Run& run, const Value& input, Values&) {
  TRY(std::string out, escaped(run, input));
  return run.heap.text(std::move(out), true);
}

Result<Value> force_escape(Run& run, const Value& input, Values&) {
  TRY(std::string text, to_str(run, input));
  TRY_VOID(run.room_for(text.size() * 5));
  TRY_VOID(run.read_bytes(text.size()));
  return run.heap.text(escape_html(text), true);
}

Result<Value> safe(Run& run, const Value& input, Values&) {
  TRY(std::string text, to_str(run, input));
  return run.heap.text(std::move(text), true);
}

// Leaves out what stands between an opening and the next closing text.
std::string without(std::string_view text, std::string_view open, std::string_view close) {
  std::string out;
  size_t i = 0;
  while (true) {
    auto start = find_first(text, open, i);
    auto end = start ? find_first(text, close, *start + open.size()) : std::nullopt;
    if (!end) break;
    out += text.substr(i, *start - i);
    i = *end + close.size();
  }
  out += text.substr(i);
  return out;
}

// The reference that starts at an ampersand: its text and length, or length 0. Numbers, and the names that matter.
struct Reference {
  std::string text;
  size_t length = 0;
};

Reference read_reference(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"&amp;", "&"},       {"&lt;", "<"},        {"&gt;", ">"},       {"&quot;", "\""}, {"&apos;", "'"},
      {"&nbsp;", "\u00A0"}, {"&copy;", "\u00A9"}, {"&reg;", "\u00AE"}, {"&raquo;", "»"}, {"&laquo;", "«"},
      {"&ndash;", "–"},     {"&mdash;", "—"},     {"&hellip;", "…"},   {"&trade;", "™"}, {"&euro;", "€"},
  };
  for (const auto& [name, meaning] : kNames) {
    if (text.starts_with(name)) return {std::string(meaning), name.size()};
  }
  if (!text.starts_with("&#")) return {};
  size_t i = 2;
  int base = 10;
  if (i < text.size() && (text[i] | 32) == 'x') {
    base = 16;
    ++i;
  }
  uint32_t number = 0;
  auto parsed = std::from_chars(text.data() + i, text.data() + text.size(), number, base);
  if (parsed.ptr == text.data() + i) return {};
  auto length = static_cast<size_t>(parsed.ptr - text.data());
  if (length < text.size() && text[length] == ';') ++length;
  Reference reference{"", length};
  bool valid = parsed.ec == std::errc() && number != 0 && number <= 0x10FFFF && !(number >= 0xD800 && number < 0xE000);
  append_code_point(reference.text, valid ? number : 0xFFFD);
  return reference;
}

std::string unescape_html(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    Reference reference = text[i] == '&' ? read_reference(text.substr(i)) : Reference();
    if (reference.length == 0) {
      out += text[i++];
    } else {
      out += reference.text;
      i += reference.length;
    }
  }
  return out;
}

Result<Value> strip_tags(Run& run, const Value& input, Values&) {
  TRY(std::string text, to_str(run, input));
  TRY_VOID(run.read_bytes(text.size() * 4));
  text = without(text, "<!--", "-->");
  text = without(text, "<", ">");
  std::string out;
  for (std::string_view word : split_words(text)) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return run.heap.text(unescape_html(out));
}

std::string percent_encode(std::string_view text, bool for_query) {
  std::string out;
  for (char c : text) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
                 c == '-' || c == '~' || (c == '/' && !for_query);
    if (plain) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

Result<std::string> encode_part(Run& run, const Value& value, bool for_query) {
  TRY(std::string text, to_str(run, value));
  TRY_VOID(run.read_bytes(text.size()));
  TRY_VOID(run.room_for(text.size() * 3));
  return percent_encode(text, for_query);
}

Result<Value> url_encode(Run& run, const Value& input, Values&) {
  if (input.is_text() || !is_iterable(input)) {
    TRY(std::string out, encode_part(run, input, false));
    return run.heap.text(std::move(out));
  }
  std::string out;
  auto add = [&](const Value& key, const Value& value) -> Result<void> {
    TRY(std::string key_text, encode_part(run, key, true));
    TRY(std::string value_text, encode_part(run, value, true));
    out += (out.empty() ? "" : "&") + key_text + "=" + value_text;
    return run.room_for(out.size());
  };
  if (input.is(Type::dict)) {
    for (const auto& [key, value] : input.as<Dict>().entries) TRY_VOID(add(key, value));
    return run.heap.text(std::move(out));
  }
  TRY_VOID(for_each(run, input, [&](Value item) -> Result<void> {
    TRY(Values pair, collect(run, item));
    if (pair.size() != 2) return fail("urlencode wants pairs, but an item has {} parts", pair.size());
    return add(pair[0], pair[1]);
  }));
  return run.heap.text(std::move(out));
}

Result<Value> xml_attributes(Run& run, const Value& input, Values& arguments) {
  if (!input.is(Type::dict)) return fail("xmlattr wants a dict, not '{}'", type_name(input));
  std::string out;
  for (const auto& [key, value] : input.as<Dict>().entries) {
    if (value.is(Type::none) || value.is_undefined()) continue;
    TRY(std::string_view name, to_text(key, "an attribute name"));
    TRY_VOID(run.read_bytes(name.size()));
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      return fail("Invalid character in attribute name: {}", text_repr(name));
    }
    TRY(std::string name_text, escaped(run, key));
    TRY(std::string value_text, escaped(run, value));
    out += (out.empty() ? "" : " ") + name_text + "=\"" + value_text + "\"";
    TRY_VOID(run.room_for(out.size()));
  }
  bool space = true;
  if (!arguments[0].is_missing()) {
    TRY(space, truthy(run, arguments[0]));
  }
  if (space && !out.empty()) out.insert(0, " ");
  return run.heap.text(std::move(out));
}

Result<Value> urlize(Run&, const Value&, Arguments&) {
  return error(Code::unsupported, "the filter 'urlize' is not supported: prompts are not HTML");
}

const FilterEntry kFilters[] = {
    {"escape", {}, 0, escape},
    {"e", {}, 0, escape},
    {"forceescape", {}, 0, force_escape},
    {"safe", {}, 0, safe},
    {"striptags", {}, 0, strip_tags},
    {"urlencode", {}, 0, url_encode},
    {"xmlattr", {"autospace"}, 0, xml_attributes},
    {"urlize", {}, 0, nullptr, urlize},
};

}  // namespace

std::span<const FilterEntry> markup_filters() { return kFilters; }

}  // namespace millrace::jinja
