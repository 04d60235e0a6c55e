#include "server/asked_thinking.h"

#include <algorithm>
#include <limits>

namespace millrace {

std::optional<ApiError> limit_thinking(RequestBody& out, int64_t tokens, std::string_view field) {
  if (tokens < 0) return {};
  const int limit = static_cast<int>(std::min<int64_t>(tokens, std::numeric_limits<int>::max()));
  if (out.think_limit >= 0 && out.think_limit != limit)
    return bad_field(field, fmt::format("'{}' says {} and '{}' says {} tokens of reasoning at most: give one of them",
                                        out.think_field, out.think_limit, field, limit));
  out.think_limit = limit;
  out.think_field = std::string(field);
  if (limit == 0) switch_thinking_off(out.chat_options.variables);
  return {};
}

void switch_thinking_off(JsonObject& variables) {
  for (const char* name : {"enable_thinking", "thinking"})
    if (!variables.contains(name)) variables[name] = false;
}

}  // namespace millrace
