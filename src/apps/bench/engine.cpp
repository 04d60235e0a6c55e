#include <optional>

#include "apps/bench/model.h"
#include "apps/cli/flags.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/run/flags.h"
#include "backend/cpu/cpu.h"
#include "base/json.h"
#include "bench/replay.h"
#include "machine/stolen.h"
#include "model/shapes.h"
#include "session/ranked.h"

namespace millrace::apps {
namespace {

struct Way {
  std::string policy;
  ReplayReport report;
  std::optional<double> stolen;  // of processor time meanwhile
};

// A model on a backend of its own for every replay: what an engine takes of a backend stays taken.
struct Subject {
  Checkpoint checkpoint;
  std::unique_ptr<Ranked> ranked;
};

Result<std::unique_ptr<Subject>> open_subject(const Arguments& arguments) {
  auto subject = std::make_unique<Subject>();
  TRY(const RankCut cut, rank_cut(arguments));
  const RankChoice choice{.device = arguments.text("device"),
                          .cpu = {.threads = static_cast<int>(arguments.integer("threads"))},
                          .ranks = ranks_of(arguments),
                          .cut = cut};
  if (auto shape = arguments.maybe_text("shape"); shape.has_value()) {
    TRY(ModelSpec spec, named_shape(*shape));
    TRY(const FormOf forms, random_forms(arguments.text("type"), spec));
    TRY(subject->ranked,
        Ranked::open(choice, [&](Backend& backend) { return Model::random(spec, forms, 1, backend); }));
    return subject;
  }
  TRY(std::filesystem::path path, model_path(arguments));
  TRY(subject->checkpoint, Checkpoint::open(path));
  TRY(subject->ranked,
      Ranked::open(choice, [&](Backend& backend) { return Model::load(subject->checkpoint, backend); }));
  return subject;
}

Result<std::vector<Arrival>> arrivals_of(const Arguments& arguments, const ModelSpec& spec, int context) {
  WorkloadLimits limits = {.context = context,
                           .vocab = spec.vocab,
                           .requests = static_cast<int>(arguments.integer("requests")),
                           .speed = arguments.number("speed"),
                           .seed = static_cast<uint64_t>(arguments.integer("seed"))};
  if (auto trace = arguments.maybe_text("trace"); trace.has_value()) return read_trace(*trace, limits);
  PoissonShape shape = {.rate = arguments.number("poisson"),
                        .prompt = static_cast<int>(arguments.integer("prompt")),
                        .output = static_cast<int>(arguments.integer("output-tokens")),
                        .shared = static_cast<int>(arguments.integer("shared-prefix")),
                        .exact = arguments.toggle("exact-lengths"),
                        .requests = std::max(1, limits.requests > 0 ? limits.requests : 100)};
  return poisson(shape, limits);
}

Result<Way> replay_one(const Arguments& arguments, const std::string& policy) {
  TRY(auto subject, open_subject(arguments));
  const ModelSpec& spec = subject->ranked->model().spec();
  int context = static_cast<int>(arguments.integer("ctx-size"));
  if (context == 0) context = std::min(spec.context, 2048);
  TRY(auto arrivals, arrivals_of(arguments, spec, context));
  ReplayOptions options;
  EngineOptions& engine = options.engine;
  engine.executor.context = context;
  engine.executor.kv = kv_type(arguments.text("kv"), subject->ranked->model(), subject->ranked->backend());
  engine.executor.pages = static_cast<int32_t>(arguments.integer("pages"));
  engine.limits.max_sequences = static_cast<int>(arguments.integer("parallel"));
  engine.limits.step_tokens =
      std::max(static_cast<int>(arguments.toggle("chunked") ? arguments.integer("batch-size") : context),
               engine.limits.max_sequences);
  engine.limits.max_waiting = 1 << 20;
  engine.swap_bytes = arguments.integer("swap");
  engine.policy = policy;
  engine.overlap = arguments.toggle("overlap");
  options.targets = {arguments.number("ttft") / 1000, arguments.number("tpot") / 1000};
  options.share_prefixes = arguments.toggle("prefix-cache");
  options.real_time = arguments.toggle("real-time");
  Progress progress(arguments.terminal(), policy, arrivals.size(), Progress::Unit::count);
  options.progress = [&](size_t ended, size_t) {
    progress.update(ended);
    return !Interruptible::interrupted();
  };
  const StolenTime stolen;
  TRY(ReplayReport report, replay(subject->ranked->model(), subject->ranked->backend(), arrivals, options));
  return Way{policy, std::move(report), stolen.share()};
}

std::string milliseconds(double seconds) { return fmt::format("{:.1f}", seconds * 1000); }

std::string three(const Histogram& histogram) {
  return fmt::format("{} / {} / {}", milliseconds(histogram.quantile(0.5)), milliseconds(histogram.quantile(0.95)),
                     milliseconds(histogram.quantile(0.99)));
}

void print_table(const Terminal& terminal, const std::vector<Way>& ways) {
  using Align = Table::Align;
  Table table({{"policy"},
               {"requests", Align::right},
               {"refused", Align::right},
               {"seconds", Align::right},
               {"tok/s", Align::right},
               {"on time/s", Align::right},
               {"TTFT p50/p95/p99 ms", Align::right},
               {"TPOT p50/p95/p99 ms", Align::right},
               {"worst gap p99 ms", Align::right},
               {"KV use", Align::right},
               {"KV waste", Align::right},
               {"prefix hits", Align::right},
               {"preempted", Align::right},
               {"overhead", Align::right}});
  for (const Way& way : ways) {
    const ReplayReport& r = way.report;
    const Metrics& m = r.metrics;
    table.row({way.policy, fmt::format("{}", r.requests), fmt::format("{}", m.refused),
               fmt::format("{:.2f}", r.seconds), fmt::format("{:.1f}", r.tokens_per_second()),
               fmt::format("{:.2f}", r.goodput()), three(m.first_token), three(m.next_token),
               milliseconds(r.token_gap_p99), fmt::format("{:.0f} %", 100 * r.page_use),
               fmt::format("{:.1f} %", 100 * m.kv_waste()), fmt::format("{:.0f} %", 100 * r.prefix_rate()),
               fmt::format("{}", m.preemptions), fmt::format("{:.2f} %", 100 * r.overhead())});
  }
  table.print(terminal);
  std::optional<double> stolen;
  for (const Way& way : ways) stolen = std::max(stolen, way.stolen);
  if (const auto text = stolen_text(stolen)) terminal.note("{}", *text);
}

JsonObject histogram_json(const Histogram& h) {
  return {{"mean", h.mean()},
          {"p50", h.quantile(0.5)},
          {"p95", h.quantile(0.95)},
          {"p99", h.quantile(0.99)},
          {"count", h.count()}};
}

JsonObject way_json(const Way& way) {
  const ReplayReport& r = way.report;
  const Metrics& m = r.metrics;
  return {{"policy", way.policy},
          {"requests", r.requests},
          {"refused", m.refused},
          {"finished", m.finished},
          {"seconds", r.seconds},
          {"tokens_in", m.tokens_in},
          {"tokens_out", m.tokens_out},
          {"tokens_per_second", r.tokens_per_second()},
          {"on_time", m.on_time},
          {"goodput_per_second", r.goodput()},
          {"queue_s", histogram_json(m.queue)},
          {"ttft_s", histogram_json(m.first_token)},
          {"tpot_s", histogram_json(m.next_token)},
          {"itl_s", histogram_json(m.between_tokens)},
          {"e2e_s", histogram_json(m.end_to_end)},
          {"worst_gap_p99_s", r.token_gap_p99},
          {"step_s", histogram_json(m.step_seconds)},
          {"step_tokens", histogram_json(m.step_tokens)},
          {"steps", m.steps},
          {"kv_use", r.page_use},
          {"kv_waste", m.kv_waste()},
          {"prefix_rate", r.prefix_rate()},
          {"preemptions", m.preemptions},
          {"overhead", r.overhead()},
          {"stolen", stolen_json(way.stolen)}};
}

Result<int> run_bench_engine(const Arguments& arguments) {
  Interruptible interruptible;
  std::vector<std::string> policies = arguments.texts("compare");
  if (policies.empty()) policies = {arguments.text("policy")};
  std::vector<Way> ways;
  for (const std::string& policy : policies) {
    auto way = replay_one(arguments, policy);
    if (!way.ok() && Interruptible::interrupted()) return interrupted_error();
    if (!way.ok()) return std::move(way).error();
    ways.push_back(std::move(*way));
  }
  if (arguments.toggle("json")) {
    JsonArray all;
    for (const Way& way : ways) all.push_back(way_json(way));
    arguments.terminal().print("{}\n", to_pretty_text(all));
  } else {
    print_table(arguments.terminal(), ways);
  }
  return kExitOk;
}

}  // namespace

Verb bench_engine_verb() {
  return {.name = "bench engine",
          .summary = "replay requests through the scheduler and the model",
          .group = "Measure and check",
          .flags = {model_flag(),
                    {.name = "shape",
                     .kind = Kind::text,
                     .value = "NAME",
                     .help = "random weights of a known shape instead of a file"},
                    {.name = "type",
                     .kind = Kind::text,
                     .value = "FORMAT",
                     .otherwise = "Q8_0",
                     .help = "weight format for --shape"},
                    text_flag("kv", "TYPE", "auto", kKvTypes, "format of keys and values; auto: as bench"),
                    {.name = "trace",
                     .kind = Kind::path,
                     .value = "FILE",
                     .help = "arrivals from a trace (Azure CSV or Mooncake JSON lines)"},
                    {.name = "poisson",
                     .kind = Kind::number,
                     .value = "RATE",
                     .otherwise = "4",
                     .least = 1e-6,
                     .most = 1e6,
                     .help = "random arrivals a second, where no trace is given"},
                    {.name = "requests",
                     .alias = "--num-prompts",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "100",
                     .least = 0,
                     .most = 1e7,
                     .help = "at most so many; 0: the whole trace"},
                    {.name = "prompt",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "128",
                     .least = 1,
                     .most = 1 << 20,
                     .help = "mean prompt tokens (--poisson)"},
                    {.name = "output-tokens",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "64",
                     .least = 1,
                     .most = 1 << 20,
                     .help = "mean tokens generated (--poisson)"},
                    {.name = "exact-lengths", .help = "every request has the mean lengths (--poisson)"},
                    {.name = "shared-prefix",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "0",
                     .least = 0,
                     .most = 1 << 20,
                     .help = "tokens every prompt begins with (--poisson)"},
                    {.name = "speed",
                     .kind = Kind::number,
                     .value = "X",
                     .otherwise = "1",
                     .least = 1e-6,
                     .most = 1e6,
                     .help = "arrivals come so many times as fast"},
                    {.name = "seed",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "1",
                     .least = 0,
                     .help = "of arrivals and prompts"},
                    {.name = "policy",
                     .kind = Kind::text,
                     .value = "NAME",
                     .otherwise = "fcfs",
                     .choices = "fcfs|priority|slo|static",
                     .help = "who goes first"},
                    {.name = "compare",
                     .kind = Kind::text,
                     .value = "NAMES",
                     .many = Many::commas,
                     .help = "several policies, one row each"},
                    {.name = "ttft",
                     .kind = Kind::number,
                     .value = "MS",
                     .otherwise = "0",
                     .least = 0,
                     .most = 1e9,
                     .help = "time to the first token that counts as on time"},
                    {.name = "tpot",
                     .kind = Kind::number,
                     .value = "MS",
                     .otherwise = "0",
                     .least = 0,
                     .most = 1e9,
                     .help = "time from token to token that counts as on time"},
                    {.name = "parallel",
                     .alias = "-np --max-num-seqs",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "32",
                     .least = 1,
                     .most = 4096,
                     .help = "sequences that run together"},
                    {.name = "batch-size",
                     .alias = "-b --max-num-batched-tokens",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "256",
                     .least = 1,
                     .most = 65536,
                     .help = "tokens of a step"},
                    {.name = "chunked", .otherwise = "true", .help = "cut prompts into the step's budget"},
                    {.name = "prefix-cache", .otherwise = "true", .help = "share the pages of equal prefixes"},
                    {.name = "ctx-size",
                     .alias = "-c",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "0",
                     .least = 0,
                     .most = 1 << 24,
                     .help = "tokens of a sequence; 0: the model's, at most 2048"},
                    {.name = "pages",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "0",
                     .least = 0,
                     .most = 1 << 30,
                     .help = "pages of the KV pool; 0: enough for all"},
                    {.name = "swap",
                     .kind = Kind::bytes,
                     .value = "BYTES",
                     .otherwise = "0",
                     .help = "memory for pages moved out of the pool"},
                    device_flag(),
                    ranks_flag(),
                    pipeline_flag(),
                    whole_experts_flag(),
                    {.name = "threads",
                     .alias = "-t",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "0",
                     .least = 0,
                     .most = 1024,
                     .help = "0: as many as cores"},
                    {.name = "overlap",
                     .otherwise = "true",
                     .help = "plan a step while the one before computes (--real-time)"},
                    {.name = "real-time", .help = "submit when requests are due, to an engine with its threads"},
                    {.name = "json", .help = "as JSON"}},
          .examples = {{"bench engine --compare static,fcfs,slo", "100 random requests, three policies"},
                       {"bench engine --trace azure.csv --speed 10 --requests 200 --ttft 500 --tpot 50",
                        "a recorded load, ten times as fast"},
                       {"bench engine --shared-prefix 1000 --prompt 1100 --no-prefix-cache",
                        "what sharing a prompt is worth"}},
          .notes =
              "Time is virtual unless --real-time: the clock moves by the measured length of each step and of the "
              "planning around it, "
              "and jumps over idle stretches. A request is on time if it met --ttft and --tpot.",
          .run = run_bench_engine};
}

}  // namespace millrace::apps
