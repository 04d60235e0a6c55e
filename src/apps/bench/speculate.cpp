#include <chrono>
#include <future>

#include "apps/cli/flags.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "apps/run/speculate.h"
#include "base/json.h"
#include "engine/engine.h"
#include "session/answer.h"

namespace millrace::apps {
namespace {

struct Way {
  int guesses = 0;  // a step; -1: as many as pay
};

struct Line {
  Way way;
  double temperature = 0;
  double seconds = 0;
  int64_t tokens = 0;
  Metrics metrics;
  bool same = true;  // as without guesses
  std::vector<std::vector<Token>> answers;

  double rate() const { return static_cast<double>(tokens) / seconds; }
  // Tokens out of a pass that had guesses.
  double tokens_a_pass() const {
    if (metrics.draft_windows == 0) return 1;
    return 1 + static_cast<double>(metrics.accepted_drafts) / static_cast<double>(metrics.draft_windows);
  }
  double pass_seconds() const {
    return (metrics.step_seconds.sum() - metrics.draft_seconds) /
           static_cast<double>(std::max<int64_t>(1, metrics.steps));
  }
};

// All answers of one way, each told apart by its seed, at most so many at once.
Result<Line> run_way(const Arguments& arguments, const Way& way, double temperature) {
  TRY(auto path, model_path(arguments));
  LoadChoice choice{.path = path, .device = arguments.text("device")};
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  TRY(choice.keep, kv_keep(arguments));
  TRY(auto loaded, LoadedModel::load(choice));
  TRY(const std::vector<Token> prompt, raw_prompt(*loaded, arguments.text("prompt")));
  EngineOptions options;
  const auto tokens = static_cast<int>(arguments.integer("predict"));
  options.executor.context = static_cast<int32_t>(prompt.size()) + tokens;
  options.executor.kv = kv_type(arguments, *loaded);
  options.limits.max_sequences = static_cast<int>(arguments.integer("parallel"));
  options.limits.step_tokens = std::max(256, options.limits.max_sequences);
  TRY(auto drafters, drafters_of(arguments, *loaded, options.executor.context));
  if (!drafters->any()) return error(Code::invalid, "say what guesses: --speculate ngram, suffix or a draft model");
  options.draft = drafters->for_engine();
  if (way.guesses == 0) options.draft = {};
  if (way.guesses > 0) options.draft.most = way.guesses;
  options.draft.steady = way.guesses > 0;
  TRY(auto engine, Engine::create(loaded->model(), loaded->backend(), options));
  const auto requests = static_cast<size_t>(arguments.integer("requests"));
  Line line{.way = way, .temperature = temperature};
  line.answers.resize(requests);
  std::promise<void> done;
  size_t left = requests;
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < requests; ++i) {
    Request request{.prompt = prompt, .max_tokens = tokens};
    request.sampling.temperature = temperature;
    request.sampling.seed = i;
    engine->submit(std::move(request), [&, i](std::span<const Event> events) {
      for (const Event& event : events) {
        if (event.token) line.answers[i].push_back(*event.token);
        if (event.finish != Finish::none && --left == 0) done.set_value();
      }
    });
  }
  done.get_future().wait();
  line.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  line.metrics = engine->snapshot().metrics;
  for (const auto& answer : line.answers) line.tokens += static_cast<int64_t>(answer.size());
  return line;
}

// What the guesses that were right, the measured passes and the measured guessing allow: nothing between steps.
double allowed(const Line& plain, const Line& line) {
  if (line.metrics.draft_windows == 0) return 1;
  const auto windows = static_cast<double>(line.metrics.draft_windows);
  const double pass = line.pass_seconds() + line.metrics.draft_seconds / windows;
  return line.tokens_a_pass() * plain.pass_seconds() / pass;
}

std::string by_depth(const Metrics& metrics) {
  std::string text;
  for (size_t depth = 0; depth < metrics.drafted_at.size() && metrics.drafted_at[depth] > 0; ++depth)
    text +=
        fmt::format("{}{:.2f}", depth == 0 ? "" : " ",
                    static_cast<double>(metrics.accepted_at[depth]) / static_cast<double>(metrics.drafted_at[depth]));
  return text;
}

std::string name_of(const Way& way) {
  return way.guesses == 0 ? "none" : way.guesses < 0 ? "as many as pay" : fmt::format("{}", way.guesses);
}

JsonObject json(const Line& plain, const Line& line) {
  return {{"temperature", line.temperature},
          {"guesses", name_of(line.way)},
          {"tokens_per_second", line.rate()},
          {"speedup", line.rate() / plain.rate()},
          {"allowed", allowed(plain, line)},
          {"tokens_a_pass", line.tokens_a_pass()},
          {"pass_cost", line.pass_seconds() / plain.pass_seconds()},
          {"drafted", line.metrics.drafted_tokens},
          {"accepted", line.metrics.accepted_drafts},
          {"accepted_by_depth", by_depth(line.metrics)},
          {"draft_seconds", line.metrics.draft_seconds},
          {"same", line.same}};
}

Result<int> run(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  using Align = Table::Align;
  Table table({{"temperature", Align::right},
               {"guesses"},
               {"tok/s", Align::right},
               {"speed-up", Align::right},
               {"allowed", Align::right},
               {"tokens a pass", Align::right},
               {"pass cost", Align::right},
               {"guess cost", Align::right},
               {"right, by depth"},
               {"same"}});
  std::vector<Way> ways = {{0}};
  for (int64_t guesses : arguments.integers("guesses")) ways.push_back({static_cast<int>(guesses)});
  ways.push_back({-1});
  JsonArray array;
  bool same = true;
  for (double temperature : {0.0, 1.0}) {
    Line plain;
    for (const Way& way : ways) {
      TRY(Line line, run_way(arguments, way, temperature));
      if (way.guesses == 0) plain = line;
      line.same = line.answers == plain.answers;
      same = same && line.same;
      const double guess =
          line.metrics.drafted_tokens == 0
              ? 0
              : line.metrics.draft_seconds / static_cast<double>(line.metrics.drafted_tokens) / plain.pass_seconds();
      table.row({fmt::format("{}", temperature), name_of(way), fmt::format("{:.0f}", line.rate()),
                 fmt::format("{:.2f}", line.rate() / plain.rate()), fmt::format("{:.2f}", allowed(plain, line)),
                 fmt::format("{:.2f}", line.tokens_a_pass()),
                 fmt::format("{:.2f}", line.pass_seconds() / plain.pass_seconds()), fmt::format("{:.2f}", guess),
                 by_depth(line.metrics), line.same ? "yes" : terminal.out_paint(Style::red, "NO")});
      array.push_back(json(plain, line));
    }
  }
  if (arguments.toggle("json"))
    terminal.print("{}\n", to_text(JsonObject{{"lines", std::move(array)}}));
  else
    table.print(terminal);
  return same ? kExitOk : kExitFailure;
}

}  // namespace

Verb bench_speculate_verb() {
  return {.name = "bench speculate",
          .summary = "measure guessing ahead against plain decoding",
          .group = "Measure and check",
          .flags = joined({{model_flag(),
                            text_flag("prompt", "TEXT", "Once upon a time", "", "what every answer continues"),
                            integer_flag("requests", "", "8", 1, 4096, "answers, each with a seed of its own"),
                            integer_flag("parallel", "-np", "1", 1, 4096, "answers under way at once"),
                            integer_flag("predict", "-n", "200", 2, 1 << 20, "tokens of an answer"),
                            {.name = "guesses",
                             .kind = Kind::integer,
                             .value = "N",
                             .otherwise = "1,2,3,4",
                             .many = Many::commas,
                             .least = 1,
                             .most = kMostDrafts,
                             .help = "fixed numbers of guesses a step to measure"},
                            device_flag(),
                            integer_flag("threads", "-t", "0", 0, 1024, "worker threads; 0: one for every processor"),
                            {.name = "json", .help = "as a JSON object"}},
                           kv_flags(),
                           speculate_flags()}),
          .examples = {{"bench speculate --speculate draft.gguf", "the shipped model with a draft model"}},
          .notes =
              "Temperature 0 and 1; without guesses, with fixed numbers of them and with as many as pay. 'allowed' is "
              "the speed-up that the guesses that were right and the measured passes and guesses would give if nothing "
              "else took time: tokens a pass over (cost of a pass + cost of its guesses), in plain passes. Exit code "
              "1 if an answer differs from the plain one.",
          .run = run};
}

}  // namespace millrace::apps
