// The fields of a chat or completion that say what the answer must be: OpenAI's, vLLM's and llama.cpp's.
#include "server/asked_bound.h"
#include "server/openai/read_request.h"

namespace millrace {
namespace {

using Failure = std::optional<ApiError>;

Failure read_response_format(const JsonObject& format, RequestBody& out) {
  const std::string_view type = find(format, "type")->get_string();
  const Json *inner = find(format, "json_schema"), *flat = find(format, "schema");
  if (type == "text") return {};
  if (type == "json_object" && flat == nullptr)
    return add_bound(out, {.kind = GrammarKind::json_object, .text = {}}, "response_format");
  if (inner != nullptr && type == "json_schema")
    return add_bound(out, schema_source(*find(*inner, "schema")), "response_format.json_schema.schema");
  if (flat != nullptr) return add_bound(out, schema_source(*flat), "response_format.schema");
  ApiError failure = bad_field("response_format.json_schema", "'response_format.json_schema' is missing");
  failure.code = "missing_required_parameter";
  return failure;
}

// One way to say what the answer must be: the name of its field, and how its value is understood.
Failure read_one(const JsonObject& object, std::string_view name, std::string_view field, RequestBody& out) {
  const Json* value = find(object, name);
  if (value == nullptr) return {};
  if (name.ends_with("choice")) return add_bound(out, choice_source(*value), field);
  if (name.ends_with("regex")) return add_bound(out, regex_source(value->get_string()), field);
  if (name.ends_with("grammar")) {  // empty is how llama.cpp's clients say none
    return value->get_string().empty() ? Failure() : add_bound(out, rules_source(value->get_string()), field);
  }
  if (name == "json_object")
    return value->get_bool() ? add_bound(out, {.kind = GrammarKind::json_object, .text = {}}, field) : Failure();
  if (!value->is_object() && !value->is_bool() && !value->is_string())
    return bad_field(field, fmt::format("'{}' must be a JSON Schema: an object, true or false", field));
  return add_bound(out, schema_source(*value), field);
}

Failure read_structured(const JsonObject& object, RequestBody& out) {
  for (std::string_view name : {"json", "regex", "choice", "grammar", "json_object"}) {
    if (auto failure = read_one(object, name, fmt::format("structured_outputs.{}", name), out)) return failure;
  }
  const Json* compact = find(object, "disable_any_whitespace");
  if (out.bound && compact != nullptr) out.bound->source.compact = compact->get_bool();
  return {};
}

}  // namespace

std::optional<ApiError> read_bound(const JsonObject& body, RequestBody& out) {
  if (const Json* format = find(body, "response_format")) {
    if (auto failure = read_response_format(format->get_object(), out)) return failure;
  }
  if (const Json* structured = find(body, "structured_outputs")) {
    if (auto failure = read_structured(structured->get_object(), out)) return failure;
  }
  for (std::string_view name :
       {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "json_schema", "grammar"}) {
    if (auto failure = read_one(body, name, name, out)) return failure;
  }
  if (!out.bound) return {};
  if (out.request.min_tokens > 0 || out.ignore_end) {
    const std::string_view field = out.ignore_end ? "ignore_eos" : "min_tokens";
    return bad_field(
        field, fmt::format("'{}' does not go with '{}', which says where the answer ends", field, out.bound->field));
  }
  return {};
}

}  // namespace millrace
