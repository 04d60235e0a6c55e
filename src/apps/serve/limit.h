// The least time a step could take on this machine, for the live view: from the calls the network really makes and the
// ceilings `millrace bench` measured here.
#pragma once

#include <functional>

#include "server/generation.h"

namespace millrace::apps {

// None if this machine was not measured yet, or the backend is not the one its ceilings are for. The model outlives it.
std::function<double(const MeanStep&)> step_floor(const Model& model, const KvForm& kv, int threads);

}  // namespace millrace::apps
