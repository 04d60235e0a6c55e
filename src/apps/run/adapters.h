// Adapters (LoRA) on the command line: --lora and --lora-scaled, by the names that llama.cpp and vLLM made familiar.
// Main thread.
#pragma once

#include <vector>

#include "apps/cli/cli.h"
#include "engine/executor.h"
#include "engine/port.h"

namespace millrace::apps {

std::vector<Flag> adapter_flags();
// What they name, in the order they were given; those with a scale last.
Result<std::vector<AdapterAsk>> adapters_of(const Arguments& arguments);
// Has every step of the executor use all of them together. Nothing if there are none.
Result<void> use_adapters(const Arguments& arguments, Executor& executor);
Result<void> use_adapters(const std::vector<AdapterAsk>& asks, const Terminal& terminal, Executor& executor);
// One of those flags: [NAME=]PATH, and with `scaled` [NAME=]PATH:SCALE.
Result<AdapterAsk> adapter_ask(std::string_view text, bool scaled);

}  // namespace millrace::apps
