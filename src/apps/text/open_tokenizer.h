// The tokenizer of whatever path a person names: a model, or just its tokenizer.json. Weights are not opened where the
// tokenizer lies beside them, so a folder with nothing but tokenizer files will do. One call, any thread.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "text/tokenizer.h"

namespace millrace::apps {

Result<Tokenizer> open_tokenizer(const std::filesystem::path& path);

}  // namespace millrace::apps
