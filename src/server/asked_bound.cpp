#include "server/asked_bound.h"

namespace millrace {

std::optional<ApiError> add_bound(RequestBody& out, GrammarSource source, std::string_view field) {
  if (out.bound)
    return bad_field(field, fmt::format("'{}' and '{}' both say what the answer must be: give one of them",
                                        out.bound->field, field));
  out.bound = AskedBound{std::move(source), std::string(field)};
  return {};
}

GrammarSource schema_source(const Json& schema) {
  return {.kind = GrammarKind::json_schema,
          .text = schema.is_string() ? std::string(schema.get_string()) : to_text(schema)};
}

GrammarSource rules_source(std::string_view rules) {
  const bool gbnf = rules.find("::=") != std::string_view::npos;
  return {.kind = gbnf ? GrammarKind::gbnf : GrammarKind::lark, .text = std::string(rules)};
}

GrammarSource choice_source(const Json& texts) { return {.kind = GrammarKind::choice, .text = to_text(texts)}; }

GrammarSource regex_source(std::string_view expression) {
  return {.kind = GrammarKind::regex, .text = std::string(expression)};
}

ApiError bound_error(const AskedBound& bound, const Error& failure) {
  ApiError out = from_error(failure);
  if (out.status != 400) return out;
  const GrammarKind kind = bound.source.kind;
  const bool json = kind == GrammarKind::json_schema || kind == GrammarKind::json_object || kind == GrammarKind::calls;
  out.param = bound.field;
  // A pointer has no ": " but in names that ask for trouble; then the message has it whole all the same.
  if (json && out.message.starts_with('/')) out.param += out.message.substr(0, out.message.find(": "));
  out.message = fmt::format("'{}': {}", bound.field, out.message);
  out.code = json ? "invalid_schema" : "invalid_grammar";
  return out;
}

}  // namespace millrace
