// Which model a verb works on: the one named by --model or MILLRACE_MODEL (a path, or a name of the models folder), by
// the operand NAME where the verb has one, or by --hf-repo; else the one shipped with the program. Verbs that take a
// model list model_flag() among their flags and ask model_path(). Main thread.
#pragma once

#include <filesystem>

#include "apps/cli/cli.h"
#include "base/result.h"
#include "hub/folder.h"
#include "hub/pull.h"

namespace millrace::apps {

// --model / -m.
Flag model_flag();
// --hf-repo / -hf, and --ca-file for what it fetches: model_path() understands them.
std::vector<Flag> hub_flags();
Flag ca_file_flag();
// The model by name, as the first word after the verb.
Operand model_operand();

// Whether any of those was given, or the shipped model is meant.
bool names_model(const Arguments& arguments);
Result<std::filesystem::path> model_path(const Arguments& arguments);
// The same for what someone typed: a path if there is one, else a name.
Result<std::filesystem::path> model_path(const Arguments& arguments, const std::string& typed);
// What clients and people call it: its name in the models folder, or the path's last part without what follows the dot.
std::string model_name(const Arguments& arguments, const std::filesystem::path& path);

// The models folder that --models-dir or MILLRACE_MODELS_DIR names, or the usual one.
ModelFolder models_folder_of(const Arguments& arguments);

// The hub that OWNER/NAME means: HF_ENDPOINT, or the usual one.
std::string hub_address();
// Fetches with a bar on a terminal; Ctrl-C keeps what came.
Result<LocalModel> pull_model(const Arguments& arguments, const std::string& typed, int retries);

// The shipped model: models/ of the source tree the program was built in, or share/millrace/models beside its bin/.
Result<std::filesystem::path> shipped_model();

}  // namespace millrace::apps
