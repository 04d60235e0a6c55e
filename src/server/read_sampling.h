// How tokens are chosen, by the fields of a checked body. The names are those of sampling_fields(), the same in every
// interface that has them. Pure but for the seed of whoever gives none; any thread.
#pragma once

#include <optional>

#include "server/api_error.h"
#include "server/request_body.h"

namespace millrace {

// What the body does not say is as in `defaults`.
std::optional<ApiError> read_sampling(const JsonObject& body, const SamplingDefaults& defaults, RequestBody& out);

}  // namespace millrace
