#include "server/schema.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

using Failure = std::optional<ApiError>;

// Where in a body we are: as an error names it, and as a list of ignored names does, where entries do not differ.
struct FieldPath {
  std::string path, kind;

  FieldPath member(std::string_view name) const {
    if (path.empty()) return {std::string(name), std::string(name)};
    return {fmt::format("{}.{}", path, name), fmt::format("{}.{}", kind, name)};
  }
  FieldPath entry(size_t index) const { return {fmt::format("{}.[{}]", path, index), kind + ".[]"}; }
};

std::string_view kind_name(const Json& value) {
  if (value.is_bool()) return "a boolean";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a text";
  if (value.is_array()) return "a list";
  return value.is_object() ? "an object" : "null";
}

ApiError wrong_kind(const FieldPath& place, std::string_view wanted, const Json& value) {
  ApiError failure =
      bad_field(place.path, fmt::format("'{}' must be {}, not {}", place.path, wanted, kind_name(value)));
  failure.code = "invalid_type";
  return failure;
}

std::string plain(double value) {
  return std::fabs(value) < 1e15 && value == std::floor(value) ? fmt::format("{:.0f}", value)
                                                               : fmt::format("{:g}", value);
}

ApiError out_of_range(const Field& field, const FieldPath& place, double value) {
  return bad_field(place.path, fmt::format("'{}' must be between {} and {}, not {}", place.path, plain(field.least),
                                           plain(field.most), plain(value)));
}

Failure check_integer(const Field& field, const FieldPath& place, const Json& value) {
  double number = 0;
  if (value.is_int64()) {
    number = static_cast<double>(value.get_int64());
  } else if (value.is_uint64()) {
    number = static_cast<double>(value.get_uint64());
  } else if (value.is_double() && std::isfinite(value.get_double()) &&
             value.get_double() == std::floor(value.get_double())) {
    number = value.get_double();
  } else {
    return wrong_kind(place, "a whole number", value);
  }
  if (number < field.least || number > field.most) return out_of_range(field, place, number);
  return {};
}

Failure check_number(const Field& field, const FieldPath& place, const Json& value) {
  if (!value.is_number()) return wrong_kind(place, "a number", value);
  const double number = value.is_double()  ? value.get_double()
                        : value.is_int64() ? static_cast<double>(value.get_int64())
                                           : static_cast<double>(value.get_uint64());
  if (!std::isfinite(number) || number < field.least || number > field.most) return out_of_range(field, place, number);
  return {};
}

bool is_choice(std::string_view choices, std::string_view text) {
  while (true) {
    const size_t end = std::min(choices.find('|'), choices.size());
    if (choices.substr(0, end) == text) return true;
    if (end == choices.size()) return false;
    choices.remove_prefix(end + 1);
  }
}

Failure check_text(const Field& field, const FieldPath& place, const Json& value) {
  if (!value.is_string()) return wrong_kind(place, "a text", value);
  const auto size = static_cast<double>(value.get_string().size());
  if (field.most > 0 && size > field.most)
    return bad_field(place.path, fmt::format("'{}' has {} bytes, at most {} are taken", place.path, size, field.most));
  if (!field.choices.empty() && !is_choice(field.choices, value.get_string()))
    return bad_field(place.path, fmt::format("'{}' must be one of {}, not '{}'", place.path, field.choices,
                                             shortened(value.get_string())));
  return {};
}

Failure too_many(const Field& field, const FieldPath& place, size_t entries) {
  if (static_cast<double>(entries) <= field.most) return {};
  return bad_field(place.path,
                   fmt::format("'{}' has {} entries, at most {} are taken", place.path, entries, plain(field.most)));
}

Failure check_texts(const Field& field, const FieldPath& place, const Json& value) {
  auto one = [&](const Json& text) -> Failure {
    if (!text.is_string()) return wrong_kind(place, "a text or a list of texts", text);
    const size_t size = text.get_string().size();
    if (size == 0 || size > kLongestStop)
      return bad_field(
          place.path, fmt::format("a text of '{}' has {} bytes; it must have 1 to {}", place.path, size, kLongestStop));
    return {};
  };
  const auto* list = value.if_array();
  if (list == nullptr) return one(value);
  if (auto failure = too_many(field, place, list->size())) return failure;
  for (const Json& text : *list)
    if (auto failure = one(text)) return failure;
  return {};
}

Failure check_strings(const Field& field, const FieldPath& place, const Json& value) {
  const auto* list = value.if_array();
  if (list == nullptr) return wrong_kind(place, "a list of texts", value);
  if (auto failure = too_many(field, place, list->size())) return failure;
  if (static_cast<double>(list->size()) < field.least)
    return bad_field(place.path, fmt::format("'{}' is an empty list", place.path));
  for (const Json& text : *list)
    if (!text.is_string()) return wrong_kind(place, "a list of texts", text);
  return {};
}

bool is_token(const Json& value) {
  return value.is_int64() && value.get_int64() >= 0 && value.get_int64() <= kLargestToken;
}

Failure check_tokens(const Field& field, const FieldPath& place, const Json& value) {
  const auto* list = value.if_array();
  if (list == nullptr) return wrong_kind(place, "a list of token ids", value);
  if (auto failure = too_many(field, place, list->size())) return failure;
  for (const Json& token : *list)
    if (!is_token(token)) return wrong_kind(place, "a list of token ids (whole numbers from 0 on)", token);
  return {};
}

Failure check_prompt(const Field& field, const FieldPath& place, const Json& value) {
  if (value.is_string()) return {};
  const auto* list = value.if_array();
  if (list == nullptr) return wrong_kind(place, "a text, token ids, or a list of either", value);
  if (list->empty()) return bad_field(place.path, fmt::format("'{}' is an empty list", place.path));
  Field ids = field;
  ids.most = kMostTokens;
  if (list->front().is_number()) return check_tokens(ids, place, value);
  if (list->size() > kMostPrompts)
    return bad_field(place.path, fmt::format("'{}' has {} prompts, at most {} are taken in one request", place.path,
                                             list->size(), kMostPrompts));
  for (const Json& one : *list) {
    if (one.is_string() && list->front().is_string()) continue;
    if (!one.is_array() || !list->front().is_array())
      return wrong_kind(place, "a list of texts or a list of lists of token ids", one);
    if (auto failure = check_tokens(ids, place, one)) return failure;
  }
  return {};
}

Failure check_bias(const Field& field, const FieldPath& place, const Json& value) {
  const auto* object = value.if_object();
  if (object == nullptr) return wrong_kind(place, "an object of token ids and numbers", value);
  if (object->size() > kMostBiases)
    return bad_field(place.path,
                     fmt::format("'{}' has {} entries, at most {} are taken", place.path, object->size(), kMostBiases));
  for (const auto& member : *object) {
    const std::string_view key(member.key().data(), member.key().size());
    if (key.empty() || key.size() > kLongestTokenKey || key.find_first_not_of("0123456789") != std::string_view::npos)
      return bad_field(place.path, fmt::format("'{}' has a key that is no token id", place.path));
    if (auto failure = check_number(field, place, member.value())) return failure;
  }
  return {};
}

Failure check_role(const FieldPath& place, const Json& value) {
  if (!value.is_string()) return wrong_kind(place, "a text", value);
  const std::string_view says = value.get_string();
  if (std::find(std::begin(kRoles), std::end(kRoles), says) != std::end(kRoles)) return {};
  return bad_field(place.path, fmt::format("'{}' is no role: there are system, developer, user, assistant and tool",
                                           shortened(says)));
}

// Values that ask for nothing: clients send them by default.
bool asks_for_nothing(const Field& field, const Json& value) {
  if (const auto* list = value.if_array(); list != nullptr && field.name == "modalities")
    return list->size() == 1 && (*list)[0] == Json("text");
  if (value.is_array()) return value.get_array().empty();
  if (value.is_string() && value.get_string().empty()) return true;
  return value.is_bool() && !value.get_bool();
}

// Changes of one letter, a swap of two included, that turn one name into the other; more than `most` are not counted.
size_t distance(std::string_view a, std::string_view b, size_t most) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > most) return most + 1;
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

// A name without what spellings differ in: maxTokens, max-tokens and max_tokens are one.
std::string bare(std::string_view name) {
  std::string out;
  for (char c : name)
    if (c != '_' && c != '-' && c != '.' && c != ' ') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

// The field that was meant, if one is so near that it must have been.
const Field* meant(std::string_view name, const Table& table, unsigned kind) {
  constexpr size_t kLongestName = 64;
  if (name.size() > kLongestName) return nullptr;
  const std::string given = bare(name);
  const size_t near = given.size() <= 2 ? 0 : given.size() <= 6 ? 1 : 2;
  const Field* best = nullptr;
  size_t least = near + 1;
  for (const Field& field : table.fields) {
    if ((field.bodies & kind) == 0) continue;
    const size_t away = distance(given, bare(field.name), near);
    if (away < least) best = &field, least = away;
  }
  return best;
}

class Checker {
 public:
  Checker(unsigned kind, Ignored& ignored) : kind_(kind), ignored_(ignored) {}

  Failure object(const Table& table, const FieldPath& place, const JsonObject& body) {
    if (body.size() > kMostMembers)
      return bad_field(place.path,
                       fmt::format("an object with {} fields, at most {} are taken", body.size(), kMostMembers));
    for (const auto& one : body) {
      const std::string_view name(one.key().data(), one.key().size());
      const Field* field = field_named(table, name);
      auto failure = field == nullptr ? unknown(table, place, name) : member(*field, place.member(name), one.value());
      if (failure) return failure;
    }
    for (const Field& field : table.fields) {
      if ((field.required & kind_) == 0) continue;
      const bool there =
          field.shape == Shape::content ? body.if_contains(field.name) != nullptr : find(body, field.name) != nullptr;
      if (there) continue;
      const std::string path = place.member(field.name).path;
      ApiError failure = bad_field(path, fmt::format("'{}' is missing", path));
      failure.code = "missing_required_parameter";
      return failure;
    }
    return {};
  }

 private:
  const Field* field_named(const Table& table, std::string_view name) const {
    for (const Field& field : table.fields)
      if (field.name == name && (field.bodies & kind_) != 0) return &field;
    return nullptr;
  }

  Failure unknown(const Table& table, const FieldPath& place, std::string_view name) {
    const std::string_view shown = shortened(name);
    const FieldPath here = place.member(shown);
    if (ignored_.contains(here.kind)) return {};
    ApiError failure = bad_field(here.path, fmt::format("unknown field '{}'", here.path));
    failure.code = "unknown_parameter";
    if (const Field* field = meant(name, table, kind_)) {
      failure.message += fmt::format(": '{}' is meant, perhaps", field->name);
      return failure;
    }
    for (const Field& field : table.fields) {  // what means something elsewhere is not harmless here
      if (field.name != name || field.standing == Standing::ignored) continue;
      failure.message = fmt::format("'{}' is no field of this request", here.path);
      return failure;
    }
    return note_ignored(here);
  }

  Failure note_ignored(const FieldPath& place) {
    ignored_.insert(place.kind);
    if (ignored_.size() <= kMostIgnored) return {};
    ApiError failure = bad_field(place.path, fmt::format("more than {} unknown fields", kMostIgnored));
    failure.code = "unknown_parameter";
    return failure;
  }

  Failure member(const Field& field, const FieldPath& place, const Json& value) {
    if (value.is_null()) return {};
    if (field.standing == Standing::ignored) return note_ignored(place);
    if (field.standing == Standing::absent) {
      if (asks_for_nothing(field, value)) return {};
      return not_built(place.path, fmt::format("'{}': {} {} not built", place.path, field.help,
                                               field.help.ends_with('s') ? "are" : "is"));
    }
    return shape(field, place, value);
  }

  Failure objects(const Field& field, const FieldPath& place, const Json& value) {
    const auto* list = value.if_array();
    const std::string_view wanted = field.shape == Shape::parts ? "a text or a list of objects" : "a list of objects";
    if (list == nullptr) return wrong_kind(place, wanted, value);
    if (static_cast<double>(list->size()) < field.least || static_cast<double>(list->size()) > field.most)
      return bad_field(place.path, fmt::format("'{}' has {} entries; there must be {} to {}", place.path, list->size(),
                                               plain(field.least), plain(field.most)));
    for (size_t i = 0; i < list->size(); ++i) {
      const FieldPath here = place.entry(i);
      const auto* one = (*list)[i].if_object();
      if (one == nullptr) return wrong_kind(here, "an object", (*list)[i]);
      if (auto failure = object(*field.inside, here, *one)) return failure;
    }
    return {};
  }

  Failure content(const Field& field, const FieldPath& place, const Json& value) {
    if (value.is_string()) return {};
    const auto* parts = value.if_array();
    if (parts == nullptr) return wrong_kind(place, "a text or a list of parts", value);
    if (parts->size() > kMostParts)
      return bad_field(place.path, fmt::format("{} parts, at most {} are taken", parts->size(), kMostParts));
    for (size_t i = 0; i < parts->size(); ++i) {
      const Json& part = (*parts)[i];
      const Json* type = find(part, "type");
      if (type != nullptr && type->is_string() && type->get_string() != "text")
        return not_built(place.path, fmt::format("content of type '{}' is not built: only text is understood",
                                                 shortened(type->get_string())));
      const Json* text = find(part, "text");
      if (type == nullptr || !type->is_string() || text == nullptr || !text->is_string())
        return bad_field(place.path, R"(a part of content must be {"type": "text", "text": ...})");
      if (auto failure = object(*field.inside, place.entry(i), part.get_object())) return failure;
    }
    return {};
  }

  Failure shape(const Field& field, const FieldPath& place, const Json& value) {
    switch (field.shape) {
      case Shape::boolean:
        return value.is_bool() ? Failure() : wrong_kind(place, "true or false", value);
      case Shape::integer:
        return check_integer(field, place, value);
      case Shape::number:
        return check_number(field, place, value);
      case Shape::text:
        return check_text(field, place, value);
      case Shape::texts:
        return check_texts(field, place, value);
      case Shape::strings:
        return check_strings(field, place, value);
      case Shape::tokens:
        return check_tokens(field, place, value);
      case Shape::prompt:
        return check_prompt(field, place, value);
      case Shape::role:
        return check_role(place, value);
      case Shape::content:
        return content(field, place, value);
      case Shape::bias:
        return check_bias(field, place, value);
      case Shape::object:
        if (!value.is_object()) return wrong_kind(place, "an object", value);
        return field.inside == nullptr ? Failure() : object(*field.inside, place, value.get_object());
      case Shape::objects:
        return objects(field, place, value);
      case Shape::parts:
        return value.is_string() ? Failure() : objects(field, place, value);
      case Shape::any:
        return {};
    }
    return {};
  }

  const unsigned kind_;
  Ignored& ignored_;
};

}  // namespace

std::optional<ApiError> check_fields(const JsonObject& body, const Table& table, unsigned kind, Ignored& ignored) {
  return Checker(kind, ignored).object(table, {}, body);
}

void add_ignored(const Ignored& ignored, HttpAnswer& answer) {
  constexpr size_t kLongest = 1024;
  if (ignored.empty()) return;
  std::string value;
  size_t left = ignored.size();
  for (const std::string& name : ignored) {
    if (value.size() + name.size() > kLongest) break;
    if (!value.empty()) value += ", ";
    for (char c : name) value += c > ' ' && c < 0x7F && c != ',' ? c : '?';
    --left;
  }
  if (left > 0) value += fmt::format(", and {} more", left);
  answer.headers.emplace_back(kIgnoredHeader, std::move(value));
}

}  // namespace millrace
