// /metrics: the engine's and the server's counters in Prometheus' text format, under the names vLLM made familiar where
// they mean the same. Pure; any thread.
#pragma once

#include <string>

#include "server/service.h"

namespace millrace {

// Without a model only the server's own counters are told.
std::string metrics_text(const ServedModel* model, const Service::Counters& counters, int open);
// What a tenant may see: its own share (share.h), and nothing of steps, pages or others.
std::string share_text(const ServedModel* model, const EngineSnapshot& share);

}  // namespace millrace
