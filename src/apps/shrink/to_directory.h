// convert --to: a model written as a Hugging Face directory with codes and scales that other engines load. Main thread.
#pragma once

#include <vector>

#include "apps/cli/cli.h"

namespace millrace::apps {

std::vector<Flag> layout_flags();  // --to --bits --group --sym

Result<int> convert_to_directory(const Arguments& arguments);

}  // namespace millrace::apps
