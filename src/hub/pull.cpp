#include "hub/pull.h"

#include "hub/fetch.h"

namespace millrace {

bool can_pull() {
#if MILLRACE_HAS_CURL
  return true;
#else
  return false;
#endif
}

std::string by_hand(const ModelFolder& folder, const ModelName& name) {
  if (name.source == ModelName::Source::registry) {
    return fmt::format("by hand: get the model as a GGUF file elsewhere and put it at {}",
                       (folder.root() / (name.name + ".gguf")).string());
  }
  return fmt::format(
      "by hand: on a machine with a network, download from {}/{}/{}/tree/{} either one .gguf file, and put it into {}, "
      "or config.json, the tokenizer's files and all .safetensors files, and put them into {}",
      name.origin, name.owner, name.name, name.revision.empty() ? "main" : name.revision, folder.root().string(),
      (folder.root() / name.name).string());
}

Result<LocalModel> pull(const ModelFolder& folder, const ModelName& name, const PullOptions& options) {
#if MILLRACE_HAS_CURL
  return fetch_model(folder, name, options);
#else
  static_cast<void>(options);
  return error(Code::unsupported, "this program was built without libcurl and cannot fetch models; {}",
               by_hand(folder, name));
#endif
}

}  // namespace millrace
