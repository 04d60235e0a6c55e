// An engine that computes nothing: it says what a script has for a prompt. Whoever writes a client can try it against
// the real server, with calls of tools that come as they should, without a model that is able to make them. Any thread;
// its answers come from one of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/port.h"
#include "session/loaded_model.h"

namespace millrace::apps {

// One line of a script: {"when": [TEXT ...], "unless": [TEXT ...], "say": TEXT, "times": N, "pause_ms": N}.
struct ScriptLine {
  std::vector<std::string> when, unless;  // texts the prompt must have, and must not have
  std::string say;                        // control tokens written out
  int times = 1;                          // said so often, one after the other
  int pause_ms = 0;                       // after every token
};

// JSON lines; an error names the line.
Result<std::vector<ScriptLine>> parse_script(std::string_view text);

// The model gives its tokenizer and outlives the engine. The first line that fits is said; if none does, the request
// fails.
Result<std::unique_ptr<EnginePort>> scripted_engine(std::vector<ScriptLine> script, const LoadedModel& model);

}  // namespace millrace::apps
