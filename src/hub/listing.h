// What hubs and registries answer, read from their JSON, and which of a repository's files a model needs. The answers
// come from outside: sizes are bounded, and no path that could leave its folder gets past here. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

// A file to be had. `sha256` is of the content, `git` the name git gives it; one of them, in lower-case hex, or none.
struct RemoteFile {
  std::string path;  // checked: relative, of plain parts
  uint64_t size = 0;
  std::string sha256, git;
};

// /api/models/OWNER/NAME/revision/REVISION of a hub.
struct HubModel {
  std::string commit;   // what the revision means now; 40 hex digits, or as given
  std::string license;  // "apache-2.0"; empty if not stated
  bool gated = false;   // only for those who have accepted its conditions
};
Result<HubModel> parse_hub_model(std::string_view json);

// One page of /api/models/OWNER/NAME/tree/REVISION?recursive=true: the files of it. Folders are left out, and so are
// files whose path is not plain (`skipped` counts them): nothing that a model needs is called so.
struct HubTree {
  std::vector<RemoteFile> files;
  size_t skipped = 0;
};
Result<HubTree> parse_hub_tree(std::string_view json);

// The address after rel="next" in a Link header.
std::optional<std::string> next_page(std::string_view link);

// /v2/OWNER/NAME/manifests/TAG of a registry: its layers as files, under the names they get here.
Result<std::vector<RemoteFile>> parse_registry_manifest(std::string_view json);

// A model of a repository: its files, the one to open, and what it is called.
struct ChosenFiles {
  std::vector<RemoteFile> files;
  std::string model;  // the path to open: a GGUF file (the first part), or empty: the folder
  std::string tag;    // "Q4_K_M", or "latest" for safetensors
};

// GGUF files by `tag` (a quantisation, case aside; all parts of one that is split) or by `file`; without either the
// safetensors with what stands beside them, else the quantisation that is usual: Q4_K_M, Q8_0, or the only one. Weights
// as pickles are refused.
Result<ChosenFiles> choose_files(const std::vector<RemoteFile>& all, std::string_view tag, std::string_view file);

// The quantisation a GGUF file's name states ("Q4_K_M", "UD-Q4_K_XL", "BF16"), or nothing.
std::optional<std::string> quantisation_in(std::string_view file);

// Relative, at most 8 plain parts.
bool is_plain_path(std::string_view path);

}  // namespace millrace
