// Text that a model is calibrated with, and the lines that verbs which make models smaller end with. Main thread.
#pragma once

#include <string>
#include <vector>

#include "apps/cli/cli.h"
#include "apps/cli/terminal.h"
#include "eval/compare.h"
#include "session/loaded_model.h"
#include "shrink/passes.h"

namespace millrace::apps {

// --calibrate --documents --limit --ctx: the text, and how it is cut.
std::vector<Flag> calibration_flags();
// What those say, with every fifth text held out.
Result<SplitTexts> calibration_texts(const Arguments& arguments, const LoadedModel& model);

// "file: 20.2 MiB; held-out text: KL 0.00399 +- 0.00005, ...": bytes, KL and perplexity.
void print_result(const Terminal& terminal, const std::string& what, uint64_t bytes, const Comparison& comparison);

}  // namespace millrace::apps
