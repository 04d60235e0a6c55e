// The body of a request as an object that fits its table: JSON under limits, then names, types and ranges. What every
// interface's reader begins with. Pure; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "server/request_body.h"
#include "server/schema.h"

namespace millrace {

std::optional<ApiError> read_checked(std::string_view body, const Table& table, unsigned kind, const BodyLimits& limits,
                                     JsonObject& out, Ignored& ignored);

}  // namespace millrace
