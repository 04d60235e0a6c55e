// A changed model written in the formats that its file had. Main thread.
#pragma once

#include <vector>

#include "apps/cli/terminal.h"
#include "model/convert.h"

namespace millrace::apps {

// Options of convert(): every matrix of `changed` as `original` has it, whose layers `kept` stayed; rows that no longer
// fill a format's groups become F16. Tokenizer and sampling as the checkpoint has them.
Result<ConvertOptions> same_formats(const Terminal& terminal, const ModelSource& original, const ModelSource& changed,
                                    const std::vector<int32_t>& kept);

std::vector<int32_t> all_layers(const ModelSpec& spec);

}  // namespace millrace::apps
