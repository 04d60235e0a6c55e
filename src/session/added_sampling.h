// Values for sampling that come with a model but not in its files, such as a registry's. Pure; any thread.
#pragma once

#include "session/sampling_defaults.h"

namespace millrace {

// From an object that has values by their names (or Ollama's: repeat_penalty), above what was there.
void add_sampling(SamplingDefaults& defaults, const Json& values);

}  // namespace millrace
