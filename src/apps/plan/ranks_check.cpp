#include "apps/plan/ranks_check.h"

#include <algorithm>
#include <cmath>

#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/plan/check.h"
#include "apps/plan/lessons.h"
#include "apps/plan/ranks.h"
#include "apps/run/flags.h"
#include "backend/cpu/cpu.h"
#include "machine/stolen.h"
#include "model/shapes.h"
#include "report/page.h"
#include "session/ranked.h"

namespace millrace::apps {
namespace {

using report::short_bytes;
using report::short_seconds;

constexpr double kAllowedError = 0.25;

struct Subject {
  std::string name;
  ModelSpec spec;
  FormOf form_of;
  Checkpoint checkpoint;  // outlives what reads it
  std::optional<ModelSource> source;
  Ranked::Make make;
};

struct MemoryRow {
  std::string what;
  int64_t planned = 0, taken = 0;
};

struct SentRow {
  StepTest test;
  int64_t least = 0, most = 0, counted = 0;
  bool good() const { return counted >= least && counted <= most; }
};

struct TimeRow {
  StepTest test;
  double predicted = 0, links = 0, measured = 0;
  double error() const { return predicted / measured - 1; }
};

struct Check {
  RanksChoice choice;
  std::string description;
  Link link;
  std::vector<MemoryRow> memory;
  std::vector<SentRow> sent;
  std::vector<TimeRow> times;
  std::optional<double> stolen;  // of processor time, while passes were timed

  bool exact() const {
    return std::ranges::all_of(memory, [](const MemoryRow& row) { return row.planned == row.taken; });
  }
  bool counted() const {
    return std::ranges::all_of(sent, [](const SentRow& row) { return row.good(); });
  }
  double median_error() const {
    std::vector<double> errors;
    for (const TimeRow& row : times) errors.push_back(std::abs(row.error()));
    std::ranges::sort(errors);
    return errors[errors.size() / 2];
  }
};

Result<std::unique_ptr<Subject>> open_subject(const Arguments& arguments) {
  auto subject = std::make_unique<Subject>();
  TRY(const KvKeep keep, kv_keep(arguments));
  if (auto shape = arguments.maybe_text("shape"); shape.has_value()) {
    TRY(subject->spec, named_shape(*shape));
    TRY_VOID(forget(subject->spec, keep));
    const std::string name = arguments.text("weights").empty() ? "Q8_0" : arguments.text("weights");
    const auto type = dtype_from_name(name);
    if (!type) return error(Code::invalid, "'{}' is no weight format; try Q8_0, Q4_0, BF16, F16 or F32", name);
    subject->name = fmt::format("{} {}", *shape, format(*type).name);
    subject->form_of = [type](const Slot&) { return *type; };
    subject->make = [&spec = subject->spec, type](Backend& backend) { return Model::random(spec, *type, 1, backend); };
    return subject;
  }
  TRY(const std::filesystem::path path, model_path(arguments));
  subject->name = path.stem().string();
  TRY(subject->checkpoint, Checkpoint::open(path));
  TRY(subject->source, ModelSource::open(subject->checkpoint, 0, Keep::small));
  TRY_VOID(subject->source->forget(keep));
  subject->spec = subject->source->spec();
  subject->form_of = [source = &*subject->source](const Slot& slot) { return source->form_of(slot); };
  subject->make = [source = &*subject->source](Backend& backend) { return Model::load(*source, backend); };
  return subject;
}

// Ranks with the model on them, and what their links take.
struct Opened {
  RanksChoice choice;
  Link link;
  std::unique_ptr<Ranked> ranked;
};

Result<Opened> open(const Arguments& arguments, const Subject& subject, int ranks) {
  Opened opened;
  const bool mpi = over_mpi(arguments);
  TRY(const RankCut cut, rank_cut(arguments));
  const RankChoice choice{
      .cpu = {.threads = static_cast<int>(arguments.integer("threads"))}, .ranks = ranks, .mpi = mpi, .cut = cut};
  // Processes other than the first stay in there, so what all do together is done where each loads.
  TRY(opened.ranked, Ranked::open(choice, [&](Backend& backend) {
        if (mpi) {
          opened.choice.here = ranks_here(*comm_of(backend));
          opened.link = measure_link(*comm_of(backend));
        }
        return subject.make(backend);
      }));
  if (!mpi) opened.link = measure_thread_link(ranks);
  opened.choice.ranks = opened.ranked->ranks();
  opened.choice.cut = cut;
  if (!mpi) opened.choice.here = ranks;
  return opened;
}

// Of rank 0 everything, of the others in this process weights and cache.
void check_memory(const Opened& opened, const std::vector<MemoryPlan>& plans, Check& check) {
  const std::vector<Ranked::Held> held = opened.ranked->held();
  for (size_t r = 0; r < held.size(); ++r) {
    check.memory.push_back({fmt::format("weights of rank {}", r), plans[r].weights, held[r].weights});
    check.memory.push_back({fmt::format("keys and values of rank {}", r), plans[r].kv, held[r].kv});
  }
  const Backend& first = opened.ranked->backend();
  check.memory.push_back({"workspace of rank 0", plans[0].workspace, first.used(Purpose::workspace)});
  check.memory.push_back({"staging of rank 0", plans[0].staging, first.used(Purpose::staging)});
}

Result<void> check_sent(const RanksPlanner& planner, const Ranked& ranked, Executor& executor, Check& check) {
  const Machine nominal = {.read_bytes = 1, .f32_operations = 1};
  for (const StepTest& test : {StepTest{.prompt = 40}, StepTest{.generated = 8, .sequences = 2}}) {
    SentRow row = {.test = test};
    for (const std::vector<PassRows>& rows : passes_of(test, executor.options().rows)) {
      const RankCount count = planner.count(0, executor.options().kv, rows);
      row.least += count.sent;
      row.most += count.sent + count.embedded;
    }
    const int64_t before = ranked.sent();
    TRY_VOID(run_step_test(executor, test, nominal, {.repetitions = 1, .warm_up = false}));
    row.counted = ranked.sent() - before;
    check.sent.push_back(row);
  }
  return {};
}

TimeRow predict(const RanksPlanner& planner, const OpFit& fit, const Machine& machine, const Link& link,
                const Executor& executor, const StepTest& test) {
  const RanksChoice& choice = planner.choice();
  const bool together = choice.cut != RankCut::layers;
  const KvForm& kv = executor.options().kv;
  TimeRow row = {.test = test};
  for (const std::vector<PassRows>& rows : passes_of(test, executor.options().rows)) {
    double work = 0;
    for (int rank = 0; rank < choice.ranks; ++rank) {
      const RankCount count = planner.count(rank, kv, rows);
      const double one =
          fit.predict(count.calls, count.records, static_cast<int32_t>(rows.size()), together ? choice.here : 1);
      work = together ? std::max(work, one) : work + one;
    }
    const double links = planner.pass(kv, rows, ceilings_of(machine, true), link).link_seconds;
    row.predicted += fit.between() + work + links;
    row.links += links;
  }
  return row;
}

// One rank with all threads, to learn from.
Result<OpFit> learn_alone(const Subject& subject, const Machine& machine, int threads, int32_t context,
                          Progress& progress) {
  TRY(auto backend, make_cpu_backend({.threads = threads}));
  TRY(auto model, subject.make(*backend));
  return learn(*model, *backend, machine, context, progress);
}

Result<Check> measure(const Arguments& arguments, const Subject& subject, int ranks) {
  const int threads = static_cast<int>(arguments.integer("threads"));
  const int32_t context = std::min(subject.spec.context, 1024);
  if (context < 64)
    return error(Code::invalid, "a model of {} positions is too short to check; 64 are needed", context);
  TRY(const Opened opened, open(arguments, subject, ranks));
  Check check = {.choice = opened.choice, .description = opened.ranked->backend().description(), .link = opened.link};
  TRY(auto like, make_cpu_backend({.threads = threads_of_rank(threads, opened.choice)}));
  TRY(const RanksPlanner planner, RanksPlanner::create(subject.spec, subject.form_of, like.get(), opened.choice));
  const std::vector<StepTest> tests = questions(context);
  const ExecutorOptions options = options_for(tests, 512, DType::f16);
  TRY(const std::vector<MemoryPlan> plans, planner.memory(options));
  TRY(auto executor, Executor::create(opened.ranked->model(), opened.ranked->backend(), options));
  check_memory(opened, plans, check);
  TRY_VOID(check_sent(planner, *opened.ranked, *executor, check));
  TRY(const Machine machine, measure_machine({.threads = threads}));
  Progress progress(arguments.terminal(), "measuring", lessons(context).size() + tests.size(), Progress::Unit::count);
  TRY(const OpFit fit, learn_alone(subject, machine, threads, context, progress));
  const StolenTime stolen;
  for (const StepTest& test : tests) {
    const StepBenchOptions timing = {.repetitions = 7,
                                     .progress = [](int, int) { return !Interruptible::interrupted(); }};
    TRY(const StepResult result, run_step_test(*executor, test, machine, timing));
    TimeRow row = predict(planner, fit, machine, opened.link, *executor, test);
    row.measured = result.median_seconds();
    check.times.push_back(row);
    progress.update(lessons(context).size() + check.times.size());
  }
  check.stolen = stolen.share();
  return check;
}

void print_check(const Terminal& terminal, const std::string& name, const Check& check) {
  using Align = Table::Align;
  terminal.print("{} on {}; links: {} an exchange, {}/s\n\n", terminal.out_paint(Style::bold, printable(name)),
                 check.description, short_seconds(check.link.seconds), short_bytes(check.link.bytes));
  Table memory({{"memory"}, {"planned", Align::right}, {"taken", Align::right}, {"difference", Align::right}});
  for (const MemoryRow& row : check.memory) {
    memory.row({row.what, memory_text(row.planned), memory_text(row.taken), memory_text(row.taken - row.planned)});
  }
  memory.print(terminal);
  terminal.print("\n");
  Table sent({{"sent by rank 0"}, {"planned", Align::right}, {"sent", Align::right}});
  for (const SentRow& row : check.sent)
    sent.row({row.test.name(), fmt::format("{} to {}", memory_text(row.least), memory_text(row.most)),
              memory_text(row.counted)});
  sent.print(terminal);
  terminal.print("\n");
  Table times({{"pass"},
               {"predicted", Align::right},
               {"of it links", Align::right},
               {"measured", Align::right},
               {"error", Align::right}});
  for (const TimeRow& row : check.times) {
    times.row({row.test.name(), short_seconds(row.predicted), short_seconds(row.links), short_seconds(row.measured),
               fmt::format("{:+.1f} %", 100 * row.error())});
  }
  times.print(terminal);
  if (const auto text = stolen_text(check.stolen)) terminal.note("{}", *text);
  terminal.print("median error {:.1f} %\n", 100 * check.median_error());
}

JsonObject check_json(const std::string& name, const Check& check) {
  JsonArray memory, sent, times;
  for (const MemoryRow& row : check.memory)
    memory.push_back(JsonObject{{"what", row.what}, {"planned", row.planned}, {"taken", row.taken}});
  for (const SentRow& row : check.sent) {
    sent.push_back(
        JsonObject{{"test", row.test.name()}, {"least", row.least}, {"most", row.most}, {"counted", row.counted}});
  }
  for (const TimeRow& row : check.times) {
    times.push_back(JsonObject{{"test", row.test.name()},
                               {"predicted_seconds", row.predicted},
                               {"link_seconds", row.links},
                               {"measured_seconds", row.measured},
                               {"error", row.error()}});
  }
  return {{"model", valid_utf8(name)},
          {"backend", check.description},
          {"ranks", check.choice.ranks},
          {"pipeline", check.choice.cut == RankCut::layers},
          {"whole_experts", check.choice.cut == RankCut::experts},
          {"link_seconds_per_exchange", check.link.seconds},
          {"link_bytes_per_second", check.link.bytes},
          {"memory", std::move(memory)},
          {"memory_exact", check.exact()},
          {"sent", std::move(sent)},
          {"sent_as_planned", check.counted()},
          {"times", std::move(times)},
          {"median_error", check.median_error()},
          {"stolen", stolen_json(check.stolen)}};
}

}  // namespace

Result<int> run_ranks_check(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  if (arguments.text("hw") != "this") return error(Code::invalid, "--check measures this machine: leave out --hw");
  std::vector<int64_t> counts = {0};  // of an MPI job: as many as there are
  if (arguments.given("ranks")) counts = arguments.integers("ranks");
  if (counts.size() != 1 || counts[0] == 1)
    return error(Code::invalid, "--check --ranks takes one number of ranks, 2 or more");
  TRY(auto subject, open_subject(arguments));
  auto check = measure(arguments, *subject, std::max(1, static_cast<int>(counts[0])));
  if (!check.ok() && Interruptible::interrupted()) return interrupted_error();
  if (!check.ok()) return check.error();
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_pretty_text(check_json(subject->name, *check)));
  } else {
    print_check(terminal, subject->name, *check);
    terminal.note(
        "Predicted from calls of one rank, timed here at other depths and lengths, on each rank's share of the "
        "machine, and from the links. A token's row is sent by the rank that has it, so what a rank sends is between "
        "two figures.");
  }
  if (!check->exact()) return error(Code::internal, "memory taken by ranks is not what was planned");
  if (!check->counted()) return error(Code::internal, "ranks did not send what was planned");
  if (check->median_error() > kAllowedError) {
    return error(Code::internal, "the median error of time is {:.0f} %, 25 % are allowed; run it on a quiet machine",
                 100 * check->median_error());
  }
  return kExitOk;
}

}  // namespace millrace::apps
