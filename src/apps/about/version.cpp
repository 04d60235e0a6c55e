#include "apps/build_info.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "base/json.h"

namespace millrace::apps {
namespace {

Result<int> run_version(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  const BuildInfo& info = kBuildInfo;
  if (arguments.toggle("json")) {
    JsonObject out = {{"version", info.version},   {"commit", info.commit},
                      {"compiler", info.compiler}, {"build_type", info.build_type},
                      {"target", info.target},     {"sanitizers", info.sanitizers},
                      {"text", info.text},         {"cuda", info.cuda}};
    terminal.print("{}\n", to_text(out));
    return kExitOk;
  }
  terminal.print("millrace {} ({}, {} {}, {})\n", info.version, info.commit, info.build_type, info.target,
                 info.compiler);
  return kExitOk;
}

}  // namespace

Verb version_verb() {
  return {.name = "version",
          .summary = "print the version, the commit and the compiler",
          .group = "This program",
          .flags = {{.name = "json", .help = "as a JSON object"}},
          .examples = {{"version", "what am I running?"}},
          .run = run_version};
}

}  // namespace millrace::apps
