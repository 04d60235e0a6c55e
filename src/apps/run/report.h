// What `run` and `chat` say when they are done: counts, times, speed and memory. Main thread.
#pragma once

#include "apps/cli/terminal.h"
#include "base/json.h"
#include "session/generator.h"
#include "session/loaded_model.h"

namespace millrace::apps {

// Three lines on stderr. `ending` says how it ended; empty: nothing did yet.
void report(const Terminal& terminal, const LoadedModel& model, const GenerateTimes& times, std::string_view ending);
void report_memory(const Terminal& terminal, const Backend& backend);

Json times_json(const GenerateTimes& times);
Json memory_json(const Backend& backend);

}  // namespace millrace::apps
