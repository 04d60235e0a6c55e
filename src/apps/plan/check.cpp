#include "apps/plan/check.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>

#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/plan/accept_check.h"
#include "apps/plan/lessons.h"
#include "apps/plan/ranks_check.h"
#include "apps/run/flags.h"
#include "backend/cpu/cpu.h"
#include "base/human.h"
#include "base/json.h"
#include "machine/stolen.h"
#include "model/shapes.h"
#include "report/page.h"

namespace millrace::apps {
namespace {

using report::short_bytes;
using report::short_seconds;

// The most memory this process has had so far, in bytes.
int64_t peak_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + 6) * 1024;
  }
  return 0;
}

struct MemoryRow {
  std::string what;
  int64_t planned = 0, taken = 0;
};

struct MemoryCheck {
  std::vector<MemoryRow> rows;
  int64_t planned = 0, resident = 0;  // above the process as it started
  bool exact() const {
    return std::all_of(rows.begin(), rows.end(), [](const MemoryRow& row) { return row.planned == row.taken; });
  }
  int64_t allowed() const { return planned / 50 + (8 << 20); }
  bool near() const { return std::abs(resident - planned) <= allowed(); }
};

struct TimeRow {
  StepResult result;
  double predicted = 0;
  double measured() const { return result.median_seconds(); }
  double error() const { return predicted / measured() - 1; }
  double of_limit() const { return result.floor.seconds / measured(); }
};

struct Check {
  std::string model, backend, isa;
  int64_t weights = 0;  // bytes
  Machine machine;
  MemoryCheck memory;
  std::vector<TimeRow> times;
  double median_error = 0;
  std::optional<double> stolen;  // of processor time, while passes were timed

  PassedLimits passed() const {
    PassedLimits all;
    for (const TimeRow& row : times)
      all.add(row.result.floor.memory_seconds, row.result.floor.compute_seconds, row.measured());
    return all;
  }
};

// What the model and an executor of that size take, planned without taking anything, and then taken and used to the
// last page.
Result<MemoryCheck> check_memory(const CheckSubject& subject, int64_t before, int32_t sequences, int32_t context) {
  MemoryCheck check;
  auto trace = make_trace_backend(subject.backend.get());
  ExecutorOptions options = {.context = context, .rows = std::min(512, context), .sequences = sequences};
  suit_requests(subject.model->spec(), options);
  TRY(const Executor::Plan plan, Executor::plan(*subject.model, *trace, options));
  TRY(auto executor, Executor::create(*subject.model, *subject.backend, options));
  const Backend& backend = *subject.backend;
  check.rows = {{"weights", subject.model->weight_bytes(), backend.used(Purpose::weights)},
                {"keys and values", plan.kv_bytes, backend.used(Purpose::kv)},
                {"workspace", plan.workspace_bytes, backend.used(Purpose::workspace)},
                {"staging", plan.staging_bytes, backend.used(Purpose::staging)}};
  for (const MemoryRow& row : check.rows) check.planned += row.planned;
  const Machine nominal = {.read_bytes = 1, .f32_operations = 1};
  const StepTest fill = {.generated = 1, .depth = context - 1, .sequences = sequences};
  TRY_VOID(run_step_test(*executor, fill, nominal, {.repetitions = 1, .warm_up = false}));
  check.resident = peak_resident() - before;
  return check;
}

double predict(const OpFit& fit, const Executor& executor, const StepTest& test) {
  double seconds = 0;
  for (const std::vector<PassRows>& rows : passes_of(test, executor.options().rows))
    seconds += fit.predict(executor.model(), executor.options().kv, rows);
  return seconds;
}

Result<Check> measure(const Arguments& arguments) {
  const int64_t before = peak_resident();
  TRY(auto subject, open_check_subject(arguments));
  const int32_t context = std::min(subject->model->spec().context, 1024);
  if (context < 64)
    return error(Code::invalid, "a model of {} positions is too short to check; 64 are needed", context);
  const bool small = subject->model->weight_bytes() < (int64_t{1} << 28);
  Check check = {
      .model = subject->name, .backend = subject->backend->description(), .weights = subject->model->weight_bytes()};
  TRY(check.memory, check_memory(*subject, before, small ? 16 : 2, small ? context : 256));
  const int threads = static_cast<int>(arguments.integer("threads"));
  TRY(Machine machine, measure_machine({.threads = threads}));
  check.isa = machine.isa;
  const std::vector<StepTest> tests = questions(context);
  Progress progress(arguments.terminal(), "measuring", lessons(context).size() + tests.size(), Progress::Unit::count);
  TRY(const OpFit fit, learn(*subject->model, *subject->backend, machine, context, progress));
  TRY(auto executor, Executor::create(*subject->model, *subject->backend, options_for(tests, 512, DType::f16)));
  std::vector<double> errors;
  const StolenTime stolen;
  for (const StepTest& test : tests) {
    const StepBenchOptions options = {.repetitions = 7,
                                      .progress = [](int, int) { return !Interruptible::interrupted(); }};
    TRY(StepResult result, run_step_test(*executor, test, machine, options));
    check.times.push_back({std::move(result), predict(fit, *executor, test)});
    errors.push_back(std::abs(check.times.back().error()));
    progress.update(lessons(context).size() + check.times.size());
  }
  check.stolen = stolen.share();
  if (check.passed().any()) {  // what was passed was no limit
    TRY(machine, measure_machine({.threads = threads, .raise = true}));
    for (TimeRow& row : check.times) row.result.floor = floor_of(*executor, row.result.passes, machine, true);
  }
  std::sort(errors.begin(), errors.end());
  check.median_error = errors[errors.size() / 2];
  check.machine = machine;
  return check;
}

void print_check(const Terminal& terminal, const Check& check) {
  using Align = Table::Align;
  terminal.print("{} on {}\n\n", terminal.out_paint(Style::bold, printable(check.model)), check.backend);
  Table memory({{"memory"}, {"planned", Align::right}, {"taken", Align::right}, {"difference", Align::right}});
  for (const MemoryRow& row : check.memory.rows) {
    memory.row({row.what, memory_text(row.planned), memory_text(row.taken), memory_text(row.taken - row.planned)});
  }
  memory.row({"resident above an empty process", memory_text(check.memory.planned), memory_text(check.memory.resident),
              memory_text(check.memory.resident - check.memory.planned)});
  memory.print(terminal);
  terminal.print("allowed of the last line: 2 % and 8 MiB, {}\n\n", memory_text(check.memory.allowed()));
  Table times({{"pass"},
               {"predicted", Align::right},
               {"measured", Align::right},
               {"error", Align::right},
               {"limit", Align::right},
               {"of limit", Align::right}});
  for (const TimeRow& row : check.times) {
    times.row({row.result.test.name(), short_seconds(row.predicted), short_seconds(row.measured()),
               fmt::format("{:+.1f} %", 100 * row.error()), short_seconds(row.result.floor.seconds),
               share_of_limit(row.of_limit())});
  }
  times.print(terminal);
  if (check.passed().any()) terminal.note("{}", over_limit_text(check.passed(), check.weights, check.machine));
  if (const auto text = stolen_text(check.stolen)) terminal.note("{}", *text);
  terminal.print("median error {:.1f} %\n", 100 * check.median_error);
}

Json check_json(const Check& check) {
  const std::string why = over_limit_text(check.passed(), check.weights, check.machine);
  JsonArray memory, times;
  for (const MemoryRow& row : check.memory.rows)
    memory.push_back(JsonObject{{"what", row.what}, {"planned", row.planned}, {"taken", row.taken}});
  for (const TimeRow& row : check.times) {
    times.push_back(JsonObject{{"test", row.result.test.name()},
                               {"predicted_seconds", row.predicted},
                               {"measured_seconds", row.measured()},
                               {"error", row.error()},
                               {"limit_seconds", row.result.floor.seconds}});
  }
  return JsonObject{{"model", valid_utf8(check.model)},
                    {"backend", check.backend},
                    {"isa", check.isa},
                    {"memory", std::move(memory)},
                    {"planned_bytes", check.memory.planned},
                    {"resident_bytes", check.memory.resident},
                    {"memory_exact", check.memory.exact()},
                    {"resident_near", check.memory.near()},
                    {"times", std::move(times)},
                    {"over_limit", why.empty() ? Json(nullptr) : Json(why)},
                    {"stolen", stolen_json(check.stolen)},
                    {"median_error", check.median_error}};
}

}  // namespace

std::string memory_text(int64_t bytes) {
  return (bytes < 0 ? "-" : "") + human_bytes(static_cast<uint64_t>(std::abs(bytes)));
}

Result<std::unique_ptr<CheckSubject>> open_check_subject(const Arguments& arguments) {
  auto subject = std::make_unique<CheckSubject>();
  TRY(subject->backend, make_cpu_backend({.threads = static_cast<int>(arguments.integer("threads"))}));
  TRY(const KvKeep keep, kv_keep(arguments));
  if (auto shape = arguments.maybe_text("shape"); shape.has_value()) {
    TRY(ModelSpec spec, named_shape(*shape));
    TRY_VOID(forget(spec, keep));
    const std::string name = arguments.text("weights").empty() ? "Q8_0" : arguments.text("weights");
    const auto type = dtype_from_name(name);
    if (!type) return error(Code::invalid, "'{}' is no weight format; try Q8_0, Q4_0, BF16, F16 or F32", name);
    subject->name = fmt::format("{} {}", *shape, format(*type).name);
    TRY(subject->model, Model::random(spec, *type, 1, *subject->backend));
    return subject;
  }
  TRY(const std::filesystem::path path, model_path(arguments));
  subject->name = path.stem().string();
  TRY(subject->checkpoint, Checkpoint::open(path));
  TRY(subject->model, Model::load(subject->checkpoint, *subject->backend, {.forget = keep}));
  return subject;
}

Result<int> run_plan_check(const Arguments& arguments) {
  Interruptible scope;
  if (arguments.given("ranks") || over_mpi(arguments)) return run_ranks_check(arguments);
  if (arguments.given("accept")) return run_accept_check(arguments);
  const Terminal& terminal = arguments.terminal();
  auto check = measure(arguments);
  if (!check.ok() && Interruptible::interrupted()) return interrupted_error();
  if (!check.ok()) return check.error();
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_pretty_text(check_json(*check)));
  } else {
    print_check(terminal, *check);
    terminal.note(
        "Predicted from the machine's measured ceilings and, per op, what calls of this model at other depths and "
        "lengths took above them; limit is from the ceilings alone.");
  }
  if (!check->memory.exact()) return error(Code::internal, "memory taken is not what was planned");
  if (!check->memory.near()) {
    return error(Code::internal, "resident memory is {} from the plan, {} are allowed",
                 short_bytes(static_cast<double>(check->memory.resident - check->memory.planned)),
                 short_bytes(static_cast<double>(check->memory.allowed())));
  }
  constexpr double kAllowedError = 0.15;
  if (check->median_error > kAllowedError) {
    return error(Code::internal, "the median error of time is {:.0f} %, 15 % are allowed; run it on a quiet machine",
                 100 * check->median_error);
  }
  return kExitOk;
}

}  // namespace millrace::apps
