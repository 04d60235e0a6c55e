// Streams that can be gone on with: what the headers of a request ask for. `X-Event-Ids: 1` puts an `id:` line on every
// event; `Last-Event-ID` with the same body goes on after that event, at this server or any other that has the same
// fingerprint. Any thread.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "server/api_error.h"
#include "server/generation.h"

namespace millrace {

// What ids of this tenant are sealed with. Replicas that share a secret make the same; without one it is the same
// everywhere: damage is found, and somebody who takes the trouble may write ids of his own, which gives him nothing
// that he could not ask for.
SealKey seal_key(std::optional<std::span<const uint8_t, 32>> secret, std::string_view tenant);

// Reads the headers; the request's body is still there. A stream that is gone on with gets its seed back.
std::optional<ApiError> read_resume(const HttpRequest& request, const Dialect& dialect, const ServedModel& model,
                                    const SealKey& key, RequestBody& asked, std::optional<StreamWriter::Ids>& out);

}  // namespace millrace
