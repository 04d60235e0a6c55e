// Writing a model as a GGUF file, as `convert` and the verbs that make models smaller do it. Main thread.
#pragma once

#include <filesystem>

#include "apps/cli/cli.h"
#include "apps/cli/terminal.h"
#include "model/convert.h"
#include "tensor/checkpoint.h"

namespace millrace::apps {

// --force --name --threads: of every verb that writes a model.
std::vector<Flag> writing_flags();
struct Writing {
  bool replace = false;
  std::string name;  // in the file; empty: the model's own
  int threads = 0;   // as asked; 0: one for every core
  int workers = 1;   // what that comes to
};
Writing writing_of(const Arguments& arguments);

// Refused: a directory, the source itself, a folder that is not there, and (without `replace`) a file that is.
Result<void> check_target(const std::filesystem::path& source, const std::filesystem::path& target, bool replace);

// Tokenizer, chat template and sampling of a Hugging Face directory; a GGUF file's keys are carried over as they are.
// The checkpoint outlives the options.
Result<void> set_text_keys(const Terminal& terminal, const Checkpoint& checkpoint, ConvertOptions& options);

// Converts under a progress bar; the file appears whole or not at all.
Result<ConvertReport> write_model(const Terminal& terminal, const ModelSource& source,
                                  const std::filesystem::path& target, ConvertOptions options);

}  // namespace millrace::apps
