#include "apps/cli/model_path.h"
#include "apps/cli/summary.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "model/source.h"
#include "session/sampling_defaults.h"

namespace millrace::apps {
namespace {

struct Shown {
  const Checkpoint& checkpoint;
  Summary summary;
  SamplingDefaults defaults;
  std::optional<LocalModel> local;  // one of the models folder
  std::string license;
  std::optional<std::string> refused;  // why it cannot be run
};

std::string note_of(const Shown& shown, std::string_view key) {
  if (!shown.local) return "";
  auto text = get_string(shown.local->notes, key, "");
  return text.ok() ? *text : "";
}

std::string quantisation(const Summary& summary) {
  std::string text;
  uint64_t all = 0;
  for (const TypeShare& share : summary.types) all += share.bytes;
  for (const TypeShare& share : summary.types) {
    const double part = all == 0 ? 0 : 100.0 * static_cast<double>(share.bytes) / static_cast<double>(all);
    if (part < 0.5 && !text.empty()) continue;
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", format(share.type).name, part);
  }
  return text;
}

Json to_json(const Shown& shown) {
  const Summary& summary = shown.summary;
  JsonObject out = {{"name", shown.local ? Json(valid_utf8(shown.local->name)) : Json()},
                    {"path", valid_utf8(shown.checkpoint.path().string())},
                    {"source", valid_utf8(note_of(shown, "source"))},
                    {"revision", valid_utf8(note_of(shown, "revision"))},
                    {"architecture", valid_utf8(summary.architecture)},
                    {"parameters", summary.parameters},
                    {"context", summary.context ? Json(*summary.context) : Json()},
                    {"quantisation", quantisation(summary)},
                    {"license", valid_utf8(shown.license)},
                    {"sampling", sampling_json(shown.defaults)},
                    {"chat_template",
                     shown.checkpoint.chat_template() ? Json(valid_utf8(*shown.checkpoint.chat_template())) : Json()}};
  if (shown.refused) out["unusable"] = valid_utf8(*shown.refused);
  return out;
}

void print(const Terminal& terminal, const Shown& shown) {
  auto line = [&](std::string_view what, std::string_view value) {
    if (!value.empty()) terminal.print("  {:<13} {}\n", what, printable(value));
  };
  const Summary& summary = shown.summary;
  terminal.print("{}\n", terminal.out_paint(Style::bold, printable(shown.local ? shown.local->name
                                                                               : shown.checkpoint.path().string())));
  if (shown.local) line("path", shown.checkpoint.path().string());
  line("source", note_of(shown, "source"));
  line("revision", note_of(shown, "revision"));
  line("format", fmt::format("{}, {}", summary.format, human_bytes(summary.file_bytes)));
  line("architecture", summary.architecture);
  line("parameters", human_count(static_cast<uint64_t>(summary.parameters)));
  line("context", summary.context ? counted(*summary.context, "token") : "");
  line("quantisation", quantisation(summary));
  const auto& chat = shown.checkpoint.chat_template();
  line("template", chat ? fmt::format("{} bytes (--template prints it)", chat->size()) : "none");
  line("license", shown.license.empty() ? "not stated" : shown.license);
  line("sampling", sampling_text(shown.defaults));
  if (shown.refused)
    terminal.print("  {:<13} {}\n", "note", terminal.out_paint(Style::yellow, printable(*shown.refused)));
}

// The models folder's own entry for a path, if it is one.
std::optional<LocalModel> local_model(const Arguments& arguments, const std::filesystem::path& path) {
  for (LocalModel& model : models_folder_of(arguments).list()) {
    if (model.model == path) return std::move(model);
  }
  return std::nullopt;
}

Result<int> run_show(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  TRY(const std::filesystem::path path, model_path(arguments));
  TRY(const Checkpoint checkpoint, Checkpoint::open(path));
  if (arguments.toggle("template")) {
    if (!checkpoint.chat_template()) return error(Code::not_found, "{} has no chat template", path.string());
    terminal.write_out(*checkpoint.chat_template());
    return kExitOk;
  }
  TRY(Summary summary, summarise(checkpoint));
  Shown shown{.checkpoint = checkpoint,
              .summary = std::move(summary),
              .defaults = model_defaults(checkpoint),
              .local = local_model(arguments, path),
              .license = "",
              .refused = std::nullopt};
  shown.license = note_of(shown, "license").empty() ? shown.summary.license : note_of(shown, "license");
  shown.refused = shown.summary.unusable;
  if (const auto source = ModelSource::open(checkpoint); !source.ok() && !shown.refused)
    shown.refused = source.error().message;
  for (const std::string& sentence : shown.defaults.ignored) terminal.warn("{}", printable(sentence));
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_pretty_text(to_json(shown)));
  } else {
    print(terminal, shown);
  }
  return kExitOk;
}

}  // namespace

Verb show_verb() {
  return {.name = "show",
          .summary = "show what a model is and how it is used",
          .group = "Look at models",
          .operands = {{.name = "NAME",
                        .required = false,
                        .help = "a name of `millrace list` or a path (default: the shipped model)"}},
          .flags = {model_flag(),
                    {.name = "template", .help = "print its chat template and nothing else"},
                    {.name = "json", .help = "as one JSON object, with the template"}},
          .examples = {{"show owner/name:Q4_K_M", "architecture, parameters, context, quantisation, licence, sampling"},
                       {"show model.gguf --template", "the chat template of a file"}},
          .notes = "`millrace inspect` shows what is in the files: tensors, types, metadata.",
          .run = run_show};
}

}  // namespace millrace::apps
