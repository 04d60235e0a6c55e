// /metrics: the engine's and the server's counters in Prometheus' text format, under the names vLLM made familiar where
// they mean the same. Pure; any thread.
#pragma once

#include <span>
#include <string>

#include "server/service.h"

namespace millrace {

// What a model's engine counts.
std::string model_metrics_text(const ServedModel& model);
// What the server counts.
std::string server_metrics_text(const ServiceCounters& counters, int open);
// Pages of several models as one: what has the same name stands together, under one heading.
std::string joined_metrics(std::span<const std::string> pages);
// What a tenant may see: its own share (share.h), and nothing of steps, pages or others.
std::string share_text(const ServedModel* model, const EngineSnapshot& share);

}  // namespace millrace
