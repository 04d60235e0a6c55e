#include "apps/cli/model_path.h"

#include <system_error>

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

// The name under which the default model is shipped; others may lie beside it.
constexpr const char* kShippedName = "stories-14m-q8_0.gguf";

std::optional<fs::path> in_folder(const fs::path& folder) {
  std::error_code ignored;
  fs::path file = folder / kShippedName;
  return fs::is_regular_file(file, ignored) ? std::optional(file) : std::nullopt;
}

}  // namespace

Flag model_flag() {
  return {.name = "model",
          .alias = "-m",
          .kind = Kind::path,
          .value = "PATH",
          .help = "the model: a GGUF file, a Hugging Face directory or a safetensors file (default: the shipped one)"};
}

Result<fs::path> shipped_model() {
  std::error_code failure;
  fs::path folder = fs::read_symlink("/proc/self/exe", failure).parent_path();
  // build/PRESET/bin/millrace in a source tree, PREFIX/bin/millrace when installed.
  for (int up = 0; up < 4 && folder.has_parent_path(); ++up, folder = folder.parent_path()) {
    if (auto found = in_folder(folder / "models")) return *found;
    if (auto found = in_folder(folder / "share/millrace/models")) return *found;
  }
  return error(Code::not_found,
               "no model named and none shipped with this program; name one with -m PATH or MILLRACE_MODEL");
}

Result<fs::path> model_path(const Arguments& arguments) {
  if (auto named = arguments.maybe_text("model")) return fs::path(*named);
  return shipped_model();
}

}  // namespace millrace::apps
