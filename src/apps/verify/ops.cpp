#include "apps/cli/flags.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "base/json.h"
#include "eval/ops/check.h"
#include "session/device.h"

namespace millrace::apps {
namespace {

std::string verdict(const OpsLine& line, const Terminal& terminal) {
  if (!line.fine()) return terminal.out_paint(Style::red, "NO");
  return line.unsupported.empty() ? terminal.out_paint(Style::green, "yes") : "not on this device";
}

void print(const std::vector<OpsLine>& lines, const Terminal& terminal) {
  using Align = Table::Align;
  Table table({{"operation"},
               {"compared", Align::right},
               {"error", Align::right},
               {"allowed", Align::right},
               {"rows of other bits", Align::right},
               {"hash"},
               {"right"}});
  for (const OpsLine& line : lines) {
    table.row({line.name, fmt::format("{}", line.cases), fmt::format("{:.1e}", line.error),
               fmt::format("{:.1e}", line.allowed), fmt::format("{}", line.different),
               fmt::format("{:016x}", line.hash), verdict(line, terminal)});
  }
  table.print(terminal);
}

JsonArray json(const std::vector<OpsLine>& lines) {
  JsonArray array;
  for (const OpsLine& line : lines) {
    array.push_back(JsonObject{{"operation", line.name},
                               {"compared", line.cases},
                               {"error", line.error},
                               {"allowed", line.allowed},
                               {"different", line.different},
                               {"hash", fmt::format("{:016x}", line.hash)},
                               {"right", line.fine()},
                               {"first", line.first},
                               {"unsupported", line.unsupported}});
  }
  return array;
}

Result<int> run_verify_ops(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  const bool plant = arguments.toggle("plant");
  CpuOptions cpu;
  cpu.threads = static_cast<int>(arguments.integer("threads"));
  TRY(auto device, open_device(arguments.text("device"), cpu));
  terminal.note("{} against the reference", device->description());
  device.reset();
  OpsCheckOptions options = {.open = [&] { return open_device(arguments.text("device"), cpu); },
                             .only = arguments.maybe_text("only").value_or(""),
                             .large = arguments.toggle("large"),
                             .plant = plant};
  TRY(const std::vector<OpsLine> lines, check_ops(options));
  int wrong = 0, unsupported = 0;
  for (const OpsLine& line : lines) {
    if (!line.fine()) ++wrong;
    if (!line.unsupported.empty()) ++unsupported;
  }
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_text(JsonObject{{"checks", lines.size()}, {"wrong", wrong}, {"lines", json(lines)}}));
  } else {
    print(lines, terminal);
    for (const OpsLine& line : lines) {
      if (!line.fine() && !plant) terminal.fail(fmt::format("{}: {}", line.name, line.first));
      if (!line.unsupported.empty()) terminal.note("{}: {}", line.name, line.unsupported);
    }
    terminal.note("{} of {} checks are wrong{}", wrong, lines.size(),
                  unsupported > 0 ? fmt::format(", {} not on this device", unsupported) : "");
  }
  const int unseen = static_cast<int>(lines.size()) - wrong - unsupported;
  if (plant && unseen > 0)
    terminal.fail(fmt::format("{} checks did not see the changed number: they are blind", unseen));
  return wrong == 0 && !plant ? kExitOk : kExitFailure;
}

}  // namespace

Verb verify_ops_verb() {
  return {.name = "verify ops",
          .summary = "check every operation of a device against the reference, in every weight format",
          .group = "Measure and check",
          .flags = {device_flag(),
                    integer_flag("threads", "-t", "0", 0, 1024, "worker threads; 0: one for every processor"),
                    text_flag("only", "TEXT", "", "", "checks whose name contains this"),
                    {.name = "large", .help = "large sizes too; of a GPU they are always taken"},
                    {.name = "plant", .help = "also change one number in every check, which must show: exit code 1"},
                    {.name = "json", .help = "as a JSON object"}},
          .examples = {{"verify ops --device cuda", "a GPU"},
                       {"verify ops --device cpu --only Q4_K", "what the CPU does with one format"}},
          .notes =
              "No model is needed: weights and inputs are random, from fixed seeds. Errors are of whole rows: the "
              "length of the difference over the length of what the reference gives. Rows must also have the same bits "
              "alone and in any company, and a composition the bits of the calls it is made of. The hash is of all "
              "numbers found: kernels that agree on every bit have the same. Exit code 1 if a check is wrong.",
          .run = run_verify_ops};
}

}  // namespace millrace::apps
