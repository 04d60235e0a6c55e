#include "server/checked_body.h"

namespace millrace {

std::optional<ApiError> read_checked(std::string_view body, const Table& table, unsigned kind, const BodyLimits& limits,
                                     JsonObject& out, Ignored& ignored) {
  auto parsed = parse_json(body, {.max_bytes = limits.bytes, .max_depth = limits.depth, .refuse_duplicate_keys = true});
  if (!parsed.ok()) {
    ApiError failure{.message = fmt::format("the body is not understood: {}", parsed.error().message)};
    failure.code = "invalid_json";
    return failure;
  }
  if (!parsed->is_object()) return ApiError{.message = "the body must be a JSON object", .code = "invalid_json"};
  if (auto failure = check_fields(parsed->get_object(), table, kind, ignored)) return failure;
  out = std::move(parsed->get_object());
  return {};
}

}  // namespace millrace
