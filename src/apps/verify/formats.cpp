#include <algorithm>

#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "base/json.h"
#include "eval/formats_check.h"

namespace millrace::apps {
namespace {

std::string verdict(const Terminal& terminal, const FormatResult& result) {
  if (result.passed()) return terminal.out_paint(Style::green, "equal");
  if (!result.failure.empty()) return terminal.out_paint(Style::red, "FAIL: ") + printable(result.failure);
  return terminal.out_paint(Style::red, fmt::format("{} differ, the first at {}: {} instead of {}", result.different,
                                                    result.first_difference, result.found, result.expected));
}

Result<int> run_verify_formats(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  std::vector<FormatResult> all;
  for (const std::string& path : arguments.operands("FILE")) {
    TRY(const Checkpoint file, Checkpoint::open(path));
    TRY(std::vector<FormatResult> results, check_formats(file));
    all.insert(all.end(), results.begin(), results.end());
  }
  const auto failed = std::count_if(all.begin(), all.end(), [](const FormatResult& each) { return !each.passed(); });
  if (arguments.toggle("json")) {
    JsonArray array;
    for (const FormatResult& each : all)
      array.push_back(JsonObject{{"format", valid_utf8(each.name)},
                                 {"values", each.values},
                                 {"different", each.different},
                                 {"failure", valid_utf8(each.failure)},
                                 {"passed", each.passed()}});
    terminal.print("{}\n", to_text(JsonObject{{"failed", failed}, {"formats", std::move(array)}}));
  } else {
    Table table({{"format"}, {"values", Table::Align::right}, {"result"}});
    for (const FormatResult& each : all)
      table.row({printable(each.name), fmt::format("{}", each.values), verdict(terminal, each)});
    table.print(terminal);
    terminal.note("{} of {} read bit for bit", all.size() - static_cast<size_t>(failed),
                  counted(static_cast<int64_t>(all.size()), "format"));
  }
  return failed == 0 ? kExitOk : kExitFailure;
}

}  // namespace

Verb verify_formats_verb() {
  return {.name = "verify formats",
          .summary = "compare how quantised formats are read with another implementation's numbers",
          .group = "Measure and check",
          .operands = {{.name = "FILE",
                        .many = true,
                        .help = "a safetensors file with tensors FORMAT.raw (bytes) and FORMAT.values (float32)"}},
          .flags = {{.name = "json", .help = "as a JSON object"}},
          .examples = {{"verify formats ggml-types.safetensors", "every format the file has"}},
          .notes =
              "Each FORMAT.raw is read as that format and compared with FORMAT.values bit for bit; a NaN equals "
              "any NaN. Exit code 1 if one differs or cannot be compared.",
          .run = run_verify_formats};
}

}  // namespace millrace::apps
