#include <chrono>
#include <ctime>

#include "apps/cli/model_path.h"
#include "apps/cli/summary.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

int64_t unix_seconds(fs::file_time_type time) {
  using namespace std::chrono;
  return duration_cast<seconds>(file_clock::to_sys(time).time_since_epoch()).count();
}

// "3 hours ago".
std::string ago(fs::file_time_type time) {
  const int64_t seconds = std::max<int64_t>(0, std::time(nullptr) - unix_seconds(time));
  struct Unit {
    int64_t seconds;
    std::string_view name;
  };
  for (const Unit& unit : {Unit{86400, "day"}, Unit{3600, "hour"}, Unit{60, "minute"}}) {
    const int64_t count = seconds / unit.seconds;
    if (count > 0) return counted(count, unit.name) + " ago";
  }
  return "just now";
}

// "GGUF v3, Q4_K": the format and what most of the weights are, or why it cannot be read.
std::string format_of(const fs::path& path) {
  auto checkpoint = Checkpoint::open(path);
  if (!checkpoint.ok()) return "unreadable";
  auto summary = summarise(*checkpoint);
  if (!summary.ok()) return "unreadable";
  const std::string type = summary->types.empty() ? "" : fmt::format(", {}", format(summary->types[0].type).name);
  return (checkpoint->kind() == Checkpoint::Kind::gguf ? "GGUF" : "safetensors") + type;
}

Result<int> run_list(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  const ModelFolder folder = models_folder_of(arguments);
  const std::vector<LocalModel> models = folder.list();
  if (arguments.toggle("json")) {
    JsonArray rows;
    for (const LocalModel& model : models) {
      JsonObject row = {{"name", valid_utf8(model.name)},
                        {"path", valid_utf8(model.model.string())},
                        {"size", model.bytes},
                        {"format", format_of(model.model)},
                        {"modified", unix_seconds(model.modified)},
                        {"used", model.used ? Json(unix_seconds(*model.used)) : Json()}};
      rows.push_back(std::move(row));
    }
    terminal.print("{}\n",
                   to_pretty_text(JsonObject{{"folder", valid_utf8(folder.root().string())}, {"models", rows}}));
    return kExitOk;
  }
  if (models.empty()) {
    terminal.note("no models in {}; `millrace pull OWNER/NAME` fetches one", printable(folder.root().string()));
    return kExitOk;
  }
  Table table({{"name"}, {"size", Table::Align::right}, {"format"}, {"modified"}, {"last used"}});
  for (const LocalModel& model : models) {
    table.row({printable(model.name), human_bytes(model.bytes), format_of(model.model), ago(model.modified),
               model.used ? ago(*model.used) : "never"});
  }
  table.print(terminal);
  return kExitOk;
}

Result<int> remove(const Arguments& arguments) {
  const ModelFolder folder = models_folder_of(arguments);
  // All names are looked up before anything goes.
  std::vector<LocalModel> models;
  for (const std::string& typed : arguments.operands("NAME")) {
    TRY(LocalModel model, folder.find(typed));
    models.push_back(std::move(model));
  }
  for (const LocalModel& model : models) {
    TRY_VOID(folder.remove(model));
    arguments.terminal().note("removed {} ({})", printable(model.name), human_bytes(model.bytes));
  }
  return kExitOk;
}

}  // namespace

Verb list_verb() {
  return {.name = "list",
          .summary = "show the models that are here by name",
          .group = "Look at models",
          .flags = {{.name = "json", .help = "as one JSON object"}},
          .examples = {{"list", "name, size, format, when it came, when it was last used"},
                       {"list --json | jq -r '.models[].name'", "for scripts"}},
          .notes =
              "Shows what `pull` fetched, and GGUF files and model directories that were put into the folder by hand. "
              "Any of these names goes where a path does: `run NAME`, `-m NAME`.",
          .run = run_list};
}

Verb rm_verb() {
  return {.name = "rm",
          .summary = "remove models by name",
          .group = "Look at models",
          .operands = {{.name = "NAME", .many = true, .help = "as `millrace list` shows it"}},
          .examples = {{"rm owner/name:Q4_K_M", "one of several quantisations"}},
          .notes = "A program that has the model open goes on with it.",
          .run = remove};
}

}  // namespace millrace::apps
