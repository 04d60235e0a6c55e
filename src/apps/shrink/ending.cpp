#include "apps/shrink/ending.h"

#include <algorithm>

#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"
#include "apps/files/writing.h"
#include "apps/shrink/texts.h"
#include "bench/step.h"
#include "machine/stolen.h"

namespace millrace::apps {
namespace {

constexpr int32_t kGenerated = 32, kMostDepth = 64;
constexpr int kRounds = 3;

// One model's generation, token by token at a small depth.
class Runner {
 public:
  static Result<Runner> make(LoadedModel& model) {
    Runner out;
    out.test_.generated = kGenerated;
    out.test_.depth = std::clamp(model.context() - kGenerated - 1, 0, kMostDepth);
    if (model.context() <= kGenerated) out.test_.generated = std::max(1, model.context() / 2);
    TRY(out.executor_, Executor::create(model.model(), model.backend(), options_for({out.test_}, 64, {})));
    return out;
  }

  Result<void> run(const Machine& machine, bool warm_up) {
    StepBenchOptions options = {.repetitions = 1, .warm_up = warm_up};
    options.progress = [](int, int) { return !Interruptible::interrupted(); };
    TRY(const StepResult result, run_step_test(*executor_, test_, machine, options));
    const auto tokens = static_cast<double>(test_.tokens());
    rates_.push_back(tokens / result.best_seconds());
    floor_ = result.floor;
    return {};
  }

  double measured() const {
    std::vector<double> sorted = rates_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double foreseen() const { return floor_.seconds > 0 ? static_cast<double>(test_.tokens()) / floor_.seconds : 0; }
  PassedLimits passed() const {
    PassedLimits passed;
    passed.add(floor_.memory_seconds, floor_.compute_seconds, static_cast<double>(test_.tokens()) / measured());
    return passed;
  }
  std::string why_over(const Machine& machine) const {
    return over_limit_text(passed(), executor_->model().weight_bytes(), machine);
  }

 private:
  StepTest test_;
  std::unique_ptr<Executor> executor_;
  std::vector<double> rates_;
  Floor floor_;
};

Result<std::unique_ptr<LoadedModel>> load_file(const Arguments& arguments, const std::filesystem::path& path) {
  LoadChoice choice = {.path = path, .context = arguments.integer("ctx")};
  choice.cpu.threads = writing_of(arguments).threads;
  return LoadedModel::load(choice);
}

// Both models in turn, so that what else the machine does falls on both alike.
Result<void> print_speed(const Arguments& arguments, const Ending& ending) {
  std::unique_ptr<LoadedModel> own;
  if (ending.before == nullptr) {
    TRY(own, load_file(arguments, ending.before_path));
  }
  TRY(auto made, load_file(arguments, ending.after));
  const auto threads = writing_of(arguments).threads;
  TRY(Machine machine, measure_machine({.threads = threads}));
  TRY(Runner before, Runner::make(own ? *own : *ending.before));
  TRY(Runner after, Runner::make(*made));
  const StolenTime stolen;
  for (int round = 0; round < kRounds; ++round) {
    TRY_VOID(before.run(machine, round == 0));
    TRY_VOID(after.run(machine, round == 0));
  }
  const std::optional<double> share = stolen.share();
  if (before.passed().any() || after.passed().any()) {  // what was passed was no limit
    TRY(machine, measure_machine({.threads = threads, .raise = true}));
    TRY_VOID(before.run(machine, false));
    TRY_VOID(after.run(machine, false));
  }
  const Terminal& terminal = arguments.terminal();
  terminal.print(
      "speed      generating {:.1f} -> {:.1f} tokens a second ({:.2f} times), at most {:.1f} -> {:.1f} ({:.2f} times) "
      "by its bytes\n",
      before.measured(), after.measured(), after.measured() / before.measured(), before.foreseen(), after.foreseen(),
      before.foreseen() > 0 ? after.foreseen() / before.foreseen() : 0);
  for (const auto& [name, runner] : {std::pair("before", &before), {"after", &after}}) {
    if (const std::string why = runner->why_over(machine); !why.empty())
      terminal.print("limit      {}: {}\n", name, why);
  }
  if (const auto text = stolen_text(share)) terminal.note("{}", *text);
  return {};
}

}  // namespace

Result<void> print_ending(const Arguments& arguments, const Ending& ending) {
  for (const Stage& stage : ending.stages) print_result(arguments.terminal(), stage.what, stage.bytes, stage.quality);
  Interruptible scope;
  auto done = print_speed(arguments, ending);
  // The file is there and whole: a speed that could not be measured does not take it back.
  if (!done.ok()) arguments.terminal().warn("the speed was not measured: {}", done.error().message);
  return {};
}

std::string unmeasured_note(const std::filesystem::path& before, const std::filesystem::path& after) {
  return fmt::format(
      "not measured for want of a text: KL, perplexity and speed of both are said by `millrace eval "
      "report {} {} -f TEXT`, or with --calibrate TEXT here",
      before.string(), after.string());
}

}  // namespace millrace::apps
