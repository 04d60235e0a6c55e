// Small files beside a model's weights (settings, tokenizers, templates), which come from strangers together with it.
// What they hold is quoted in messages and given to clients, so a link among them must not lead to a file of somebody
// else: links are followed as long as they stay in the model's folder, or, in a download cache of Hugging Face
// (snapshots/REVISION/FILE -> ../../blobs/HASH), in that of its blobs. Called by all who read such files; any thread.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace millrace {

// Whether a path is the folder or below it, both as fs::canonical() gives them.
bool lies_in(const std::filesystem::path& folder, const std::filesystem::path& path);

// An error that names the file and where it leads if that is elsewhere. A file that is not there is fine.
Result<void> check_side_file(const std::filesystem::path& folder, const std::filesystem::path& file);

// The same, and what it holds.
Result<std::string> read_side_file(const std::filesystem::path& folder, const std::filesystem::path& file,
                                   size_t max_bytes);

}  // namespace millrace
