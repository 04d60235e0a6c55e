// Further models of a server, by name: loaded when somebody asks for them, put to sleep when memory is short.
#include <algorithm>
#include <filesystem>

#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/run/flags.h"
#include "apps/serve/flags.h"
#include "hub/folder.h"

namespace millrace::apps {
namespace {

struct Further {
  std::string name;
  std::filesystem::path path;
};

int64_t bytes_of(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::is_directory(path, failed))
    return static_cast<int64_t>(std::filesystem::file_size(path, failed));
  int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(path, failed)) {
    if (file.path().extension() == ".safetensors" || file.path().extension() == ".gguf")
      bytes += static_cast<int64_t>(file.file_size(failed));
  }
  return bytes;
}

Result<Further> read_one(const Arguments& arguments, const std::string& word) {
  const size_t equals = word.find('=');
  const std::string typed = equals == std::string::npos ? word : word.substr(equals + 1);
  TRY(auto path, model_path(arguments, typed));
  std::error_code failed;
  if (!std::filesystem::exists(path, failed))
    return error(Code::not_found, "--models {}: there is no file '{}'", word, path.string());
  return Further{equals == std::string::npos ? model_name(arguments, path) : word.substr(0, equals), path};
}

Result<std::vector<Further>> further_models(const Arguments& arguments, const std::filesystem::path& first,
                                            const std::string& first_name) {
  std::vector<Further> list;
  auto add = [&](Further one) -> Result<void> {
    const bool twice = std::ranges::any_of(list, [&](const Further& other) { return other.name == one.name; });
    if (one.name.empty() || twice || one.name == first_name)
      return error(Code::invalid, "--models: two models are called '{}'; give one another name: NAME=PATH", one.name);
    list.push_back(std::move(one));
    return {};
  };
  for (const std::string& word : arguments.texts("models")) {
    if (word != "all") {
      TRY(Further one, read_one(arguments, word));
      TRY_VOID(add(std::move(one)));
      continue;
    }
    for (const LocalModel& model : models_folder_of(arguments).list())
      if (model.model != first) TRY_VOID(add({model.name, model.model}));
  }
  return list;
}

}  // namespace

std::vector<Flag> more_models_flags() {
  return {
      by_commas(text_flag("models", "NAME[=PATH]", "", "",
                          "further models, loaded when a request names them; 'all': every one that was pulled")),
      integer_flag("models-max", "", "0", 0, 4096, "models awake at once; 0: as many as memory holds"),
      number_flag("load-wait", "", "60", 0, 86400,
                  "seconds a request waits for a model that is being loaded; what takes longer is told to come again"),
  };
}

Result<std::optional<ShelfOptions>> shelf_options(const Arguments& arguments, const std::function<bool()>& go_on) {
  std::optional<ShelfOptions> options;
  if (!arguments.given("models")) return options;
  for (const std::string_view flag :
       {"in-process", "cache-file", "kv-events", "script", "page-store", "lora", "speculate"})
    if (arguments.given(flag) && (flag != "in-process" || arguments.toggle(flag)))
      return error(Code::unsupported, "--{} is for one model, and --models names more: serve them one by one", flag);
  TRY(const auto path, model_path(arguments));
  options.emplace();
  options->first = {arguments.maybe_text("alias").value_or(model_name(arguments, path)), bytes_of(path)};
  TRY(const auto list, further_models(arguments, path, options->first.name));
  for (const Further& each : list) options->others.push_back({each.name, bytes_of(each.path)});
  options->memory = memory_limit(arguments);
  options->most_awake = static_cast<int>(arguments.integer("models-max"));
  options->patience = arguments.number("load-wait");
  options->log = [terminal = &arguments.terminal()](std::string_view line) { terminal->note("{}", line); };
  options->load = [&arguments, list, go_on](const std::string& name, int64_t memory) -> Result<ServedModel> {
    const auto one = std::ranges::find(list, name, &Further::name);
    TRY(const Arguments changed, arguments.with({"--hf-repo=", "--model", one->path.string(), "--alias", name,
                                                 "--memory-limit", std::to_string(memory)}));
    return served_model(changed, go_on, true, {"--quiet"});
  };
  return options;
}

}  // namespace millrace::apps
