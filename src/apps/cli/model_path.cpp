#include "apps/cli/model_path.h"

#include <cstdlib>
#include <system_error>

#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"

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
          .help =
              "the model: a GGUF file, a Hugging Face directory, a safetensors file, or a name that `millrace list` "
              "shows (default: the shipped one)"};
}

std::vector<Flag> hub_flags() {
  return {{.name = "hf-repo",
           .alias = "-hf -hfr",
           .kind = Kind::text,
           .value = "OWNER/NAME[:QUANT]",
           .help = "the model, from a hub: pulled first if it is not here"},
          ca_file_flag()};
}

Flag ca_file_flag() {
  return {.name = "ca-file",
          .kind = Kind::path,
          .value = "FILE",
          .help = "certificates to trust when pulling, instead of the system's (SSL_CERT_FILE too)"};
}

Operand model_operand() {
  return {
      .name = "NAME", .required = false, .help = "the model, as --model has it: a name of `millrace list` or a path"};
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

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Whether a name could be pulled, so that it is worth saying so.
bool could_be_pulled(const std::string& typed) {
  const bool file = typed.ends_with(".gguf") || typed.ends_with(".safetensors");
  if (typed.starts_with('/') || typed.starts_with('.') || (file && typed.find("://") == typed.npos)) return false;
  return parse_name(typed, hub_address()).ok();
}

bool names_repository(const Arguments& arguments) {
  return arguments.knows("hf-repo") && !arguments.text("hf-repo").empty();
}

std::string typed_model(const Arguments& arguments) {
  if (const std::string name = arguments.operand("NAME"); !name.empty()) return name;
  return arguments.knows("model") ? arguments.text("model") : "";
}

Result<fs::path> local_path(const Arguments& arguments, const LocalModel& model) {
  // The engine's own process may not write, and its parent has noted it.
  if (arguments.verb().name != "engine") ModelFolder::mark_used(model);
  return model.model;
}

}  // namespace

ModelFolder models_folder_of(const Arguments& arguments) {
  return ModelFolder(models_folder(arguments.text("models-dir")));
}

std::string hub_address() {
  const std::string chosen = environment("HF_ENDPOINT");
  return chosen.empty() ? std::string(kHub) : chosen;
}

bool names_model(const Arguments& arguments) {
  return !typed_model(arguments).empty() || (names_repository(arguments));
}

Result<fs::path> model_path(const Arguments& arguments, const std::string& typed) {
  std::error_code failed;
  if (fs::exists(typed, failed)) return fs::path(typed);
  const ModelFolder folder = models_folder_of(arguments);
  auto found = folder.find(typed);
  if (found.ok()) return local_path(arguments, *found);
  if (found.error().code != Code::not_found) return found.error();
  if (!could_be_pulled(typed)) return fs::path(typed);  // whoever opens it complains
  return error(Code::not_found,
               "there is no file '{}' and no model of that name in {}; `millrace list` shows the models there are, "
               "`millrace pull {}` would fetch it",
               typed, folder.root().string(), typed);
}

Result<fs::path> model_path(const Arguments& arguments) {
  const std::string typed = typed_model(arguments);
  if (names_repository(arguments)) {
    const std::string wanted = arguments.text("hf-repo");
    if (!arguments.operand("NAME").empty())
      return error(Code::invalid, "give the model as NAME, with --model or with --hf-repo, not twice");
    if (auto here = models_folder_of(arguments).find(wanted); here.ok()) return local_path(arguments, *here);
    TRY(const LocalModel pulled, pull_model(arguments, wanted, 5));
    return local_path(arguments, pulled);
  }
  return typed.empty() ? shipped_model() : model_path(arguments, typed);
}

std::string model_name(const Arguments& arguments, const fs::path& path) {
  for (const LocalModel& model : models_folder_of(arguments).list()) {
    if (model.model == path) return valid_utf8(model.name);
  }
  return valid_utf8(path.stem().string());
}

Result<LocalModel> pull_model(const Arguments& arguments, const std::string& typed, int retries) {
  const Terminal& terminal = arguments.terminal();
  const std::string hub = hub_address();
  TRY(const ModelName name, parse_name(typed, hub));
  const ModelFolder folder = models_folder_of(arguments);
  PullOptions options{.token = environment("HF_TOKEN"), .token_origin = origin_of(hub), .retries = retries};
  options.ca_file = arguments.maybe_text("ca-file").value_or(environment("SSL_CERT_FILE"));
  std::optional<Progress> progress;
  Interruptible scope;
  options.progress = [&](uint64_t done, uint64_t total) {
    if (!terminal.err_is_tty()) return;
    if (!progress) progress.emplace(terminal, "pulling", total, Progress::Unit::bytes);
    progress->update(done);
  };
  options.note = [&](const std::string& line) {
    progress.reset();
    terminal.note("{}", printable(line));
  };
  options.go_on = [] { return !Interruptible::interrupted(); };
  auto pulled = pull(folder, name, options);
  progress.reset();
  if (!pulled.ok() && Interruptible::interrupted()) {
    terminal.note("stopped; what came is kept, and the same command goes on from there");
    return interrupted_error();
  }
  if (!pulled.ok()) return Error{pulled.error().code, printable(pulled.error().message)};
  return pulled;
}

}  // namespace millrace::apps
