// The lines that verbs which make models smaller end with: bytes, KL with its error and perplexity of every stage, then
// how fast the model was and is, foreseen from bytes and measured. Main thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/cli/cli.h"
#include "eval/compare.h"
#include "session/loaded_model.h"

namespace millrace::apps {

// A line of quality: what the model was at some stage of the way.
struct Stage {
  std::string what;  // "not healed", "result"
  uint64_t bytes = 0;
  const Comparison& quality;
};

struct Ending {
  std::vector<Stage> stages;
  LoadedModel* before = nullptr;      // the model it came from, where it is loaded; else
  std::filesystem::path before_path;  // where it lies
  std::filesystem::path after;        // the file that was written
};

// Uses --threads of the verb. The file stays whatever happens here.
Result<void> print_ending(const Arguments& arguments, const Ending& ending);

// What is said instead where no text was given to measure by: how the same figures are had.
std::string unmeasured_note(const std::filesystem::path& before, const std::filesystem::path& after);

}  // namespace millrace::apps
