// What `embed` and `rerank` share: how the model is loaded and texts are read. Main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/cli/cli.h"
#include "session/embedder.h"

namespace millrace::apps {

// --ctx-size --truncate, and where and how the model runs.
std::vector<Flag> encoder_flags();

struct LoadedEmbedder {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<Embedder> embedder;
};
// `pooling` empty: as the model's files say.
Result<LoadedEmbedder> load_embedder(const Arguments& arguments, const std::string& pooling, bool scores);

// The texts of --prompt, or the lines of --file or standard input; JSON strings of a .jsonl file.
Result<std::vector<std::string>> texts_of(const Arguments& arguments, std::string_view flag);

}  // namespace millrace::apps
