// Which model a verb works on: the one named by --model or MILLRACE_MODEL, else the one shipped with the program. Verbs
// that take a model list model_flag() among their flags and ask model_path().
#pragma once

#include <filesystem>

#include "apps/cli/cli.h"
#include "base/result.h"

namespace millrace::apps {

// --model / -m.
Flag model_flag();

Result<std::filesystem::path> model_path(const Arguments& arguments);

// The shipped model: models/ of the source tree the program was built in, or share/millrace/models beside its bin/.
Result<std::filesystem::path> shipped_model();

}  // namespace millrace::apps
