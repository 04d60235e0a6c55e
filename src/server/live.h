// The live view: what the engine does, as JSON a few times a second, for as long as somebody looks.
#pragma once

#include <memory>

#include "base/json.h"
#include "server/generation.h"
#include "server/http.h"

namespace millrace {

Json live_json(const Engine::Snapshot& snapshot, const EngineOptions& options);

// Answers with a stream of server-sent events, one object each.
void start_live(const ServedModel& model, std::shared_ptr<Exchange> exchange);

}  // namespace millrace
