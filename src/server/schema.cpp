#include "server/schema.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

std::string_view kind_name(const Json& value) {
  if (value.is_bool()) return "a boolean";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a text";
  if (value.is_array()) return "a list";
  return value.is_object() ? "an object" : "null";
}

ApiError wrong_kind(const Field& field, std::string_view wanted, const Json& value) {
  ApiError failure =
      bad_field(field.name, fmt::format("'{}' must be {}, not {}", field.name, wanted, kind_name(value)));
  failure.code = "invalid_type";
  return failure;
}

std::string plain(double value) {
  return std::fabs(value) < 1e15 && value == std::floor(value) ? fmt::format("{:.0f}", value)
                                                               : fmt::format("{:g}", value);
}

ApiError out_of_range(const Field& field, std::string_view what, double value) {
  return bad_field(field.name, fmt::format("'{}'{} must be between {} and {}, not {}", field.name, what,
                                           plain(field.least), plain(field.most), plain(value)));
}

using Failure = std::optional<ApiError>;

Failure check_integer(const Field& field, const Json& value) {
  double number = 0;
  if (value.is_int64()) {
    number = static_cast<double>(value.get_int64());
  } else if (value.is_uint64()) {
    number = static_cast<double>(value.get_uint64());
  } else if (value.is_double() && std::isfinite(value.get_double()) &&
             value.get_double() == std::floor(value.get_double())) {
    number = value.get_double();
  } else {
    return wrong_kind(field, "a whole number", value);
  }
  if (number < field.least || number > field.most) return out_of_range(field, "", number);
  return {};
}

Failure check_number(const Field& field, const Json& value) {
  if (!value.is_number()) return wrong_kind(field, "a number", value);
  const double number = value.is_double()  ? value.get_double()
                        : value.is_int64() ? static_cast<double>(value.get_int64())
                                           : static_cast<double>(value.get_uint64());
  if (!std::isfinite(number) || number < field.least || number > field.most) return out_of_range(field, "", number);
  return {};
}

Failure check_text(const Field& field, const Json& value) {
  if (!value.is_string()) return wrong_kind(field, "a text", value);
  const auto size = static_cast<double>(value.get_string().size());
  if (field.most > 0 && size > field.most)
    return bad_field(field.name, fmt::format("'{}' has {} bytes, at most {} are taken", field.name, size, field.most));
  return {};
}

Failure check_texts(const Field& field, const Json& value) {
  auto one = [&](const Json& text) -> Failure {
    if (!text.is_string()) return wrong_kind(field, "a text or a list of texts", text);
    const size_t size = text.get_string().size();
    if (size == 0 || size > kLongestStop)
      return bad_field(
          field.name, fmt::format("a text of '{}' has {} bytes; it must have 1 to {}", field.name, size, kLongestStop));
    return {};
  };
  const auto* list = value.if_array();
  if (list == nullptr) return one(value);
  if (static_cast<double>(list->size()) > field.most)
    return bad_field(field.name, fmt::format("'{}' has {} entries, at most {} are taken", field.name, list->size(),
                                             plain(field.most)));
  for (const Json& text : *list)
    if (auto failure = one(text)) return failure;
  return {};
}

bool is_token(const Json& value) {
  return value.is_int64() && value.get_int64() >= 0 && value.get_int64() <= kLargestToken;
}

Failure check_tokens(const Field& field, const Json& value) {
  const auto* list = value.if_array();
  if (list == nullptr) return wrong_kind(field, "a list of token ids", value);
  if (static_cast<double>(list->size()) > field.most)
    return bad_field(field.name, fmt::format("'{}' has {} entries, at most {} are taken", field.name, list->size(),
                                             plain(field.most)));
  for (const Json& token : *list)
    if (!is_token(token)) return wrong_kind(field, "a list of token ids, which are whole numbers from 0 on,", token);
  return {};
}

Failure check_prompt(const Field& field, const Json& value) {
  if (value.is_string()) return {};
  const auto* list = value.if_array();
  if (list == nullptr) return wrong_kind(field, "a text, token ids, or a list of either", value);
  if (list->empty()) return bad_field(field.name, fmt::format("'{}' is an empty list", field.name));
  Field ids = field;
  ids.most = kMostTokens;
  if (list->front().is_number()) return check_tokens(ids, value);
  if (list->size() > kMostPrompts)
    return bad_field(field.name, fmt::format("'{}' has {} prompts, at most {} are taken in one request", field.name,
                                             list->size(), kMostPrompts));
  for (const Json& one : *list) {
    if (one.is_string() && list->front().is_string()) continue;
    if (!one.is_array() || !list->front().is_array())
      return wrong_kind(field, "a list of texts or a list of lists of token ids", one);
    if (auto failure = check_tokens(ids, one)) return failure;
  }
  return {};
}

Failure check_bias(const Field& field, const Json& value) {
  const auto* object = value.if_object();
  if (object == nullptr) return wrong_kind(field, "an object of token ids and numbers", value);
  if (object->size() > kMostBiases)
    return bad_field(field.name,
                     fmt::format("'{}' has {} entries, at most {} are taken", field.name, object->size(), kMostBiases));
  for (const auto& member : *object) {
    const std::string_view key(member.key().data(), member.key().size());
    if (key.empty() || key.size() > kLongestTokenKey || key.find_first_not_of("0123456789") != std::string_view::npos)
      return bad_field(field.name, fmt::format("'{}' has a key that is no token id", field.name));
    if (auto failure = check_number(field, member.value())) return failure;
  }
  return {};
}

Failure check_content(const Field& field, const Json& content, size_t index) {
  auto fail = [&](std::string message) {
    return bad_field(fmt::format("{}.[{}].content", field.name, index), message);
  };
  if (content.is_string() || content.is_null()) return {};
  const auto* parts = content.if_array();
  if (parts == nullptr)
    return fail(fmt::format("content must be a text or a list of parts, not {}", kind_name(content)));
  if (parts->size() > kMostParts) return fail(fmt::format("{} parts, at most {} are taken", parts->size(), kMostParts));
  for (const Json& part : *parts) {
    const Json* type = find(part, "type");
    const bool named = type != nullptr && type->is_string();
    if (named && type->get_string() != "text")
      return not_built(
          fmt::format("{}.[{}].content", field.name, index),
          fmt::format("content of type '{}' is not built: only text is understood", shortened(type->get_string())));
    const Json* text = find(part, "text");
    if (!named || text == nullptr || !text->is_string())
      return fail("a part of content must be {\"type\": \"text\", \"text\": ...}");
  }
  return {};
}

Failure check_message(const Field& field, const Json& message, size_t index) {
  const auto* object = message.if_object();
  const std::string name = fmt::format("{}.[{}]", field.name, index);
  if (object == nullptr) return bad_field(name, fmt::format("a message must be an object, not {}", kind_name(message)));
  const Json* role = find(*object, "role");
  if (role == nullptr || !role->is_string())
    return bad_field(name + ".role", "a message needs a role, which is a text");
  const std::string_view says = role->get_string();
  for (std::string_view key : {"tool_calls", "function_call", "tool_call_id", "audio"})
    if (find(*object, key) != nullptr)
      return not_built(name + "." + std::string(key), fmt::format("'{}' in a message is not built", key));
  if (says == "tool" || says == "function")
    return not_built(name + ".role", fmt::format("the role '{}' is not built: there are no tool calls", says));
  if (std::find(std::begin(kRoles), std::end(kRoles), says) == std::end(kRoles))
    return bad_field(name + ".role",
                     fmt::format("'{}' is no role: there are system, developer, user and assistant", shortened(says)));
  const Json* content = object->if_contains("content");
  if (content == nullptr) return bad_field(name + ".content", "a message needs content");
  return check_content(field, *content, index);
}

Failure check_messages(const Field& field, const Json& value) {
  const auto* list = value.if_array();
  if (list == nullptr) return wrong_kind(field, "a list of messages", value);
  if (list->empty() || static_cast<double>(list->size()) > field.most)
    return bad_field(field.name, fmt::format("'{}' has {} entries; there must be 1 to {}", field.name, list->size(),
                                             plain(field.most)));
  size_t index = 0;
  for (const Json& message : *list)
    if (auto failure = check_message(field, message, index++)) return failure;
  return {};
}

// Values that ask for nothing: clients send them by default.
bool asks_for_nothing(const Field& field, const Json& value) {
  if (value.is_array()) {
    const auto& list = value.get_array();
    if (field.name == "modalities") return list.size() == 1 && list[0] == Json("text");
    return list.empty();
  }
  if (field.name == "tool_choice" || field.name == "function_call")
    return value == Json("none") || value == Json("auto");
  if (field.name == "suffix") return value == Json("");
  const Json* type = find(value, "type");
  return field.name == "response_format" && type != nullptr && *type == Json("text");
}

Failure check_shape(const Field& field, const Json& value) {
  switch (field.shape) {
    case Shape::boolean:
      return value.is_bool() ? Failure() : wrong_kind(field, "true or false", value);
    case Shape::integer:
      return check_integer(field, value);
    case Shape::number:
      return check_number(field, value);
    case Shape::text:
      return check_text(field, value);
    case Shape::texts:
      return check_texts(field, value);
    case Shape::tokens:
      return check_tokens(field, value);
    case Shape::prompt:
      return check_prompt(field, value);
    case Shape::messages:
      return check_messages(field, value);
    case Shape::bias:
      return check_bias(field, value);
    case Shape::object:
      return value.is_object() ? Failure() : wrong_kind(field, "an object", value);
    case Shape::any:
      return {};
  }
  return {};
}

const Field* field_named(std::string_view name, Body kind) {
  for (const Field& field : fields())
    if (field.name == name && (field.bodies & kind) != 0) return &field;
  return nullptr;
}

}  // namespace

std::optional<ApiError> check_fields(const JsonObject& body, Body kind) {
  for (const auto& member : body) {
    const std::string_view name(member.key().data(), member.key().size());
    const Field* field = field_named(name, kind);
    if (field == nullptr) {
      ApiError failure = bad_field(shortened(name), fmt::format("unknown field '{}'", shortened(name)));
      failure.code = "unknown_parameter";
      return failure;
    }
    if (member.value().is_null() || field->standing == Standing::ignored) continue;
    if (field->standing == Standing::absent) {
      if (asks_for_nothing(*field, member.value())) continue;
      return not_built(
          name, fmt::format("'{}': {} {} not built", name, field->help, field->help.ends_with('s') ? "are" : "is"));
    }
    if (auto failure = check_shape(*field, member.value())) return failure;
  }
  for (const Field& field : fields()) {
    if (field.required && (field.bodies & kind) != 0 && find(body, field.name) == nullptr) {
      ApiError failure = bad_field(field.name, fmt::format("'{}' is missing", field.name));
      failure.code = "missing_required_parameter";
      return failure;
    }
  }
  return {};
}

}  // namespace millrace
