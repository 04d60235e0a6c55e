#include "apps/cli/flags.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/adapters.h"
#include "apps/run/flags.h"
#include "base/json.h"
#include "eval/crowd_check.h"
#include "session/loaded_model.h"

namespace millrace::apps {
namespace {

struct Line {
  CrowdWay way;
  CrowdOutcome outcome;
  int differs_at = -1;
};

// A model on a backend of its own for every way: what an engine takes of a backend stays taken.
Result<CrowdOutcome> run_one(const Arguments& arguments, CrowdSize size, const CrowdWay& way, bool plant) {
  TRY(auto path, model_path(arguments));
  LoadChoice choice{.path = path, .device = arguments.text("device"), .context = size.prompt + size.tokens};
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  TRY(choice.keep, kv_keep(arguments));
  TRY(auto loaded, LoadedModel::load(choice));
  if (choice.context > loaded->context() && !choice.keep.bounded())
    return error(Code::invalid,
                 "prompts of {} tokens and answers of {} are more than the model's {}: ask for less "
                 "(--prompt, --predict)",
                 size.prompt, size.tokens, loaded->context());
  size.kv = kv_type(arguments, *loaded);
  TRY(size.adapters, adapters_of(arguments));
  std::vector<Request> requests =
      crowd_requests(size, loaded->vocab(), static_cast<uint64_t>(arguments.integer("seed")));
  if (plant) requests.back().prompt.back() = (requests.back().prompt.back() + 1) % loaded->vocab();
  Progress progress(arguments.terminal(), way.name, requests.size(), Progress::Unit::count);
  return run_crowd(loaded->model(), loaded->backend(), size, way, std::move(requests),
                   [&](int answered) { progress.update(static_cast<size_t>(answered)); });
}

void print(const std::vector<Line>& lines, const Terminal& terminal) {
  using Align = Table::Align;
  Table table({{"way"},
               {"steps", Align::right},
               {"tokens in", Align::right},
               {"found in the cache", Align::right},
               {"put off", Align::right},
               {"pages outside", Align::right},
               {"tokens computed", Align::right},
               {"same as the first"}});
  for (const Line& line : lines) {
    const Metrics& m = line.outcome.metrics;
    std::vector<std::string> cells = {line.way.name};
    for (const int64_t number : {m.steps, m.tokens_in, m.cached_tokens, m.preemptions,
                                 static_cast<int64_t>(m.second_pages_used), m.computed_tokens})
      cells.push_back(fmt::format("{}", number));
    cells.push_back(line.differs_at < 0
                        ? terminal.out_paint(Style::green, "yes")
                        : terminal.out_paint(Style::red, fmt::format("NO, from request {}", line.differs_at)));
    table.row(std::move(cells));
  }
  table.print(terminal);
}

JsonArray json(const std::vector<Line>& lines) {
  JsonArray array;
  for (const Line& line : lines) {
    const Metrics& m = line.outcome.metrics;
    array.push_back(JsonObject{{"way", line.way.name},
                               {"steps", m.steps},
                               {"cached_tokens", m.cached_tokens},
                               {"preemptions", m.preemptions},
                               {"pages_outside", m.second_pages_used},
                               {"computed_tokens", m.computed_tokens},
                               {"same", line.differs_at < 0}});
  }
  return array;
}

Result<int> run_verify_crowd(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  const CrowdSize size = {.requests = static_cast<int>(arguments.integer("requests")),
                          .parallel = static_cast<int>(arguments.integer("parallel")),
                          .prompt = static_cast<int>(arguments.integer("prompt")),
                          .tokens = static_cast<int>(arguments.integer("predict")),
                          .swap_bytes = arguments.integer("swap")};
  const bool plant = arguments.toggle("plant");
  std::vector<Line> lines;
  for (const CrowdWay& way : crowd_ways()) {
    TRY(CrowdOutcome outcome, run_one(arguments, size, way, plant && lines.size() == 1));
    const int differs = lines.empty() ? -1 : first_difference(lines[0].outcome.answers, outcome.answers);
    lines.push_back({way, std::move(outcome), differs});
  }
  int differences = 0;
  int64_t preemptions = 0, moved = 0;
  for (const Line& line : lines) {
    differences += line.differs_at < 0 ? 0 : 1;
    preemptions += line.outcome.metrics.preemptions;
    moved += line.outcome.metrics.second_pages_used;
  }
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_text(JsonObject{{"requests", size.requests},
                                              {"answers", lines[0].outcome.answers.size()},
                                              {"differences", differences},
                                              {"ways", json(lines)}}));
  } else {
    print(lines, terminal);
    terminal.note("{} in {} to give the same {}", counted(differences, "difference"),
                  counted(static_cast<int64_t>(lines.size()), "way"),
                  counted(static_cast<int64_t>(lines[0].outcome.answers.size()), "answer"));
  }
  if (plant && differences == 0) terminal.fail("the changed prompt did not show: the check is blind");
  const bool shown = preemptions > 0 && (moved > 0 || size.swap_bytes == 0);
  if (preemptions == 0)
    terminal.fail("nobody was put off, so little is shown: ask for more --requests or longer answers (--predict)");
  else if (!shown)
    terminal.fail("nothing was moved out, so little is shown: ask for more --requests or a larger --swap");
  return differences == 0 && !plant && shown ? kExitOk : kExitFailure;
}

}  // namespace

Verb verify_crowd_verb() {
  return {.name = "verify crowd",
          .summary = "check that answers in a crowd are those given alone, token by token",
          .group = "Measure and check",
          .flags =
              joined({{model_flag(), device_flag(),
                       integer_flag("threads", "-t", "0", 0, 1024, "worker threads; 0: one for every processor")},
                      kv_flags(),
                      adapter_flags(),
                      {integer_flag("requests", "", "64", 2, 65536, "requests to answer"),
                       integer_flag("parallel", "-np", "16", 4, 4096, "answers under way at once"),
                       integer_flag("prompt", "", "96", 8, 1 << 20, "tokens of a prompt, at most"),
                       integer_flag("predict", "-n", "32", 2, 1 << 20, "tokens of an answer, at most"),
                       integer_flag("swap", "", "268435456", 0, 1e12, "bytes of the host's memory for pages moved out"),
                       integer_flag("seed", "-s", "3", 0, 1e12, "of prompts and draws"),
                       {.name = "plant", .help = "also change one prompt, which must be found: exit code 1"},
                       {.name = "json", .help = "as a JSON object"}}}),
          .examples = {{"verify crowd", "the shipped model"},
                       {"verify crowd --device cuda -m model.gguf --requests 200 --parallel 32", "another, on a GPU"}},
          .notes =
              "Random prompts, many of which begin alike, half of them greedy and half sampled, some with three "
              "answers, are answered one after the other with nothing shared; then all together, in steps of 512 and "
              "of 48 tokens; then in a cache for a quarter of what runs at once, where answers are put off and "
              "computed again, or moved to the host's memory and back. Every answer must have the same tokens. Exit "
              "code 1 if one differs, if nobody was put off or if nothing was moved out. With --lora requests have the "
              "adapters in turn, and some have none.",
          .run = run_verify_crowd};
}

}  // namespace millrace::apps
