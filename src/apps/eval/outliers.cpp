// `eval outliers`: planted outliers against eight bits, in four ways.
#include "eval/outliers.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "base/json.h"
#include "session/device.h"

namespace millrace::apps {
namespace {

Result<int> run_eval_outliers(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  using Align = Table::Align;
  Table table({{"times", Align::right},
               {"int8 a row", Align::right},
               {"int8 a row, columns apart", Align::right},
               {"Q8_0", Align::right},
               {"Q8_0, columns apart", Align::right}});
  JsonArray rows;
  for (const int64_t times : arguments.integers("times")) {
    OutlierAsk ask;
    ask.inputs = arguments.integer("inputs");
    ask.outputs = arguments.integer("outputs");
    ask.rows = arguments.integer("rows");
    ask.planted = static_cast<int32_t>(arguments.integer("planted"));
    ask.seed = static_cast<uint64_t>(arguments.integer("seed"));
    ask.times = static_cast<float>(times);
    CpuOptions cpu;
    cpu.threads = static_cast<int>(arguments.integer("threads"));
    TRY(auto backend, open_device(arguments.text("device"), cpu));
    TRY(const OutlierErrors errors, measure_outliers(std::move(backend), ask));
    auto percent = [](double share) { return fmt::format("{:.2f} %", 100 * share); };
    table.row({fmt::format("{}", times), percent(errors.plain), percent(errors.plain_apart), percent(errors.grouped),
               percent(errors.grouped_apart)});
    rows.push_back(JsonObject{{"times", times},
                              {"int8", errors.plain},
                              {"int8_apart", errors.plain_apart},
                              {"q8_0", errors.grouped},
                              {"q8_0_apart", errors.grouped_apart}});
  }
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_text(rows));
  } else {
    table.print(terminal);
  }
  return kExitOk;
}

}  // namespace

Verb eval_outliers_verb() {
  return {.name = "eval outliers",
          .summary = "measure what planted outliers do to products in eight bits",
          .group = "Measure and check",
          .flags = {integer_flag("inputs", "", "4096", 64, 1 << 20, "of a product, a multiple of 32"),
                    integer_flag("outputs", "", "256", 1, 1 << 20, "of it"),
                    integer_flag("rows", "", "16", 1, 2048, "of inputs"),
                    integer_flag("planted", "", "6", 1, 1 << 16, "columns whose inputs are larger"),
                    by_commas(integer_flag("times", "", "1,10,20,50,100", 1, 1e6, "how much larger")),
                    integer_flag("seed", "-s", "1", 0, 1e12, "of all numbers"),
                    integer_flag("threads", "-t", "0", 0, 1024, "worker threads; 0: one for every processor"),
                    device_flag(),
                    {.name = "json", .help = "as a JSON array"}},
          .examples = {{"eval outliers", "six columns in 4,096"},
                       {"eval outliers --inputs 1024 --planted 2 --times 60", "another product"}},
          .notes =
              "Errors are of the whole product, as a part of what its ordinary columns give. int8 a row has one factor "
              "for a row of inputs and one for an output's weights; Q8_0 is multiplied as the device does it, with a "
              "factor for every 32. Columns apart are kept in 16 bits, chosen once from other rows.",
          .run = run_eval_outliers};
}

}  // namespace millrace::apps
