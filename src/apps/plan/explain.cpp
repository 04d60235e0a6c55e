#include <algorithm>
#include <chrono>

#include "apps/cli/input.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/output.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/plan/explain_report.h"
#include "apps/plan/report.h"
#include "apps/run/flags.h"
#include "base/team.h"
#include "bench/step.h"
#include "machine/stolen.h"
#include "model/slots.h"
#include "session/answer.h"
#include "session/chat_prompt.h"
#include "session/device.h"

namespace millrace::apps {
namespace {

// Giving work to all workers and waiting for them, without any work.
double handover_seconds(int threads) {
  if (threads < 2) return 0;
  using Clock = std::chrono::steady_clock;
  Team team(threads);
  std::vector<double> times;
  for (int i = 0; i < 2000; ++i) {
    const auto begin = Clock::now();
    team.run([](int, int) {});
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + 1000, times.end());
  return times[1000];
}

Result<std::vector<Token>> tokenise(const Arguments& arguments, const LoadedModel& model) {
  if (!arguments.toggle("chat")) return raw_prompt(model, arguments.text("prompt"));
  const Message message = {"user", arguments.text("prompt")};
  TRY(ChatPrompt prompt, chat_prompt(model, {&message, 1}));
  return std::move(prompt.tokens);
}

// What it takes to bring the cache of so many tokens from the host's memory; 0 where it is there anyway.
double host_seconds(Executor& executor, int64_t bytes) {
  using Clock = std::chrono::steady_clock;
  Store& store = executor.store();
  if (!store.apart() || bytes > store.bytes()) return 0;
  std::vector<std::byte> host(static_cast<size_t>(bytes));
  store.read(store.base(), host);
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const auto begin = Clock::now();
    store.write(host, store.base());
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

// One request, every call timed.
Result<void> run_request(const Arguments& arguments, LoadedModel& model, Generator& generator, CallOps& calls,
                         ExplainReport& report) {
  TRY(const Sampling sampling, sampling_of(arguments, model));
  const GenerateOptions options = generate_options(arguments, model, sampling);
  Executor& executor = generator.executor();
  // Once before, so that nothing is touched for the first time in what is shown.
  TRY(const std::vector<Token> warm, tokenise(arguments, model));
  GenerateOptions few = options;
  few.max_tokens = 2;
  const auto more = [](const GeneratedToken&) { return Generator::Reply::more; };
  TRY_VOID(generator.generate(warm, few, more));
  few.max_tokens = 1;
  TRY(const Generated again, generator.generate(warm, few, more));
  report.again = {.found = again.times.reused_tokens, .seconds = again.times.prompt_seconds};
  report.again.bytes = executor.layout().pages_for(report.again.found) * executor.store().page_bytes();
  generator.forget();
  calls.clear();
  RequestTimeline& timeline = report.timeline;
  timeline.tokenise.begin = calls.now();
  TRY(const std::vector<Token> prompt, tokenise(arguments, model));
  timeline.tokenise.seconds = calls.now() - timeline.tokenise.begin;
  TRY(Answer answer, Answer::create(model, {}, !arguments.toggle("chat")));
  TRY(const Generated generated, generator.generate(
                                     prompt, options,
                                     [&](const GeneratedToken& token) {
                                       const double begin = calls.now();
                                       if (!token.last) answer.push(token.id, report.answer);
                                       timeline.chosen.push_back({begin, calls.now() - begin});
                                       return Interruptible::interrupted() ? Generator::Reply::enough
                                                                           : Generator::Reply::more;
                                     },
                                     [] { return Interruptible::interrupted(); }));
  answer.finish(report.answer);
  timeline.end = calls.now();
  report.again.from_host = host_seconds(executor, report.again.bytes);
  timeline.prompt = generated.times.prompt_tokens;
  timeline.answer = static_cast<int32_t>(generated.tokens.size());
  return {};
}

Result<Machine> machine_of(const Arguments& arguments, bool raise) {
  return measure_device(arguments.text("device"),
                        {.threads = static_cast<int>(arguments.integer("threads")), .raise = raise});
}

// Passes of several lengths, and the executor they ran on.
struct GrowthRuns {
  std::unique_ptr<Executor> executor;
  std::vector<StepResult> results;
};

// How prefill grows with the prompt and a token with the context, up to what the model was made for.
Result<GrowthRuns> measure_growth(const Arguments& arguments, LoadedModel& model, const Machine& machine) {
  const int32_t most = std::min(model.context(), static_cast<int32_t>(arguments.integer("growth")));
  std::vector<StepTest> tests;
  for (int32_t part = 1; part <= 8; ++part) {
    const int32_t length = most * part / 8;
    if (length < 16) continue;
    tests.push_back({.prompt = length});
    tests.push_back({.generated = 4, .depth = length - 4});
  }
  GrowthRuns runs;
  if (tests.empty()) return runs;
  const KvForm kv = kv_type(arguments, model);
  TRY(runs.executor, Executor::create(model.model(), model.backend(),
                                      options_for(tests, step_rows(arguments, "ubatch-size", 512), kv)));
  Progress progress(arguments.terminal(), "measuring growth", tests.size(), Progress::Unit::count);
  for (const StepTest& test : tests) {
    TRY(StepResult result, run_step_test(*runs.executor, test, machine, {.repetitions = 3, .progress = [](int, int) {
                                                                           return !Interruptible::interrupted();
                                                                         }}));
    runs.results.push_back(std::move(result));
    progress.update(runs.results.size());
  }
  return runs;
}

// They stand beside the ceilings as these are known now.
void put_growth(const GrowthRuns& runs, ExplainReport& report) {
  report.prefill.clear(), report.decode.clear();
  for (const StepResult& result : runs.results) {
    const StepTest& test = result.test;
    const double passes = test.generated > 0 ? test.generated : 1;
    Floor floor = floor_of(*runs.executor, result.passes, report.machine, true);
    for (double* each : {&floor.seconds, &floor.memory_seconds, &floor.compute_seconds, &floor.bytes, &floor.flops})
      *each /= passes;
    (test.generated > 0 ? report.decode : report.prefill)
        .push_back({test.generated > 0 ? test.depth : test.prompt, result.median_seconds() / passes, floor});
  }
}

Result<int> run_explain(const Arguments& arguments) {
  TRY_VOID(check_outputs(arguments, {"html", "trace"}));
  Interruptible scope;
  const Terminal& terminal = arguments.terminal();
  TRY(auto loaded, load_model(arguments, 0));
  ExplainReport report = {.model = loaded->checkpoint().path().stem().string(),
                          .backend = loaded->backend().description(),
                          .weights = loaded->model().weight_bytes(),
                          .parameters = loaded->model().parameters(),
                          .active = active_parameters(loaded->model().spec()),
                          .touched = touched_by_batch(loaded->model().spec())};
  TRY(report.machine, machine_of(arguments, false));
  report.handover = handover_seconds(report.machine.threads);
  TimedBackend timed(loaded->backend());
  TRY(const std::vector<Token> prompt, tokenise(arguments, *loaded));
  ExecutorOptions options = {.rows = step_rows(arguments, "ubatch-size", 512)};
  options.context = loaded->context();
  if (const int64_t predict = arguments.integer("predict"); predict >= 0) {
    const int64_t needed = static_cast<int64_t>(prompt.size()) + std::max<int64_t>(2, predict) + 1;
    options.context = static_cast<int32_t>(std::min<int64_t>(options.context, needed));
  }
  options.kv = kv_type(arguments, *loaded);
  TRY(auto generator, Generator::create(loaded->model(), timed, options));
  const StolenTime stolen;
  auto done = run_request(arguments, *loaded, *generator, *timed.calls(), report);
  if (done.ok() && !Interruptible::interrupted()) {
    count_costs(*timed.calls(), loaded->model(), options.kv);
    GrowthRuns runs;
    if (arguments.integer("growth") > 0) {
      auto grown = measure_growth(arguments, *loaded, report.machine);
      if (grown.ok())
        runs = std::move(*grown);
      else
        done = std::move(grown).error();
    }
    report.stolen = stolen.share();
    auto explain_all = [&] {
      report.what =
          explain(*timed.calls(), report.timeline, loaded->model(), ceilings_of(report.machine, true), report.handover);
      put_growth(runs, report);
    };
    explain_all();
    if (passed_limits(report).any()) {  // what was passed was no limit
      TRY(report.machine, machine_of(arguments, true));
      explain_all();
    }
  }
  if (Interruptible::interrupted()) return interrupted_error();
  TRY_VOID(std::move(done));
  if (arguments.given("trace"))
    TRY_VOID(write_report(terminal, arguments.text("trace"), explanation_trace(report, *timed.calls())));
  if (arguments.given("html")) TRY_VOID(write_report(terminal, arguments.text("html"), explanation_page(report)));
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_pretty_text(explanation_json(report)));
  } else if (!arguments.given("html")) {
    print_explanation(terminal, report);
  }
  return kExitOk;
}

}  // namespace

Verb explain_verb() {
  std::vector<Flag> flags =
      joined({{model_flag(),
               {.name = "prompt",
                .alias = "-p",
                .kind = Kind::text,
                .value = "TEXT",
                .otherwise = "Once upon a time",
                .help = "what the request asks"},
               {.name = "chat", .help = "through the model's chat template"},
               {.name = "growth",
                .kind = Kind::integer,
                .value = "N",
                .otherwise = "1024",
                .least = 0,
                .most = 1 << 20,
                .help = "measure lengths up to N tokens too; 0: none"},
               {.name = "json", .help = "as one JSON object"},
               {.name = "html", .kind = Kind::path, .value = "FILE", .help = "write a page with charts"},
               force_flag("replace the files of --html and --trace if they are there already"),
               {.name = "trace",
                .kind = Kind::path,
                .value = "FILE",
                .help = "write a trace for ui.perfetto.dev or chrome://tracing"}},
              stopping_flags(),
              sampling_flags(),
              machine_flags()});
  for (Flag& flag : flags) {
    if (flag.name == "predict") flag.otherwise = "64";
  }
  return {
      .name = "explain",
      .summary = "run one request and show where each millisecond went",
      .group = "Measure and check",
      .flags = std::move(flags),
      .examples = {{"explain", "the shipped model"},
                   {"explain -m model.gguf -p 'Hello' -n 32 --html request.html --trace request.json",
                    "a page, and a trace for Perfetto"}},
      .notes =
          "Every call of the network is timed from outside, over the same kernels that run otherwise; one request runs "
          "before it to touch everything once. Limits are the machine's measured ceilings: each op the longer of "
          "reading its weights and cache and computing. Barrier is what handing work to the workers takes without any "
          "work; rest is what is left above both.",
      .run = run_explain};
}

}  // namespace millrace::apps
