#include "apps/shrink/calibrated.h"

#include <algorithm>

#include "apps/cli/flags.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"
#include "apps/shrink/texts.h"
#include "shrink/allocate.h"
#include "shrink/calibrate.h"

namespace millrace::apps {
namespace {

// Matrices rounded by importance, or as if all columns counted alike, whichever is nearer to the teacher.
Result<Comparison> round_all(const Arguments& arguments, Bench& bench, Team& team, ModelSource& source,
                             const TypeOf& type_of, const ColumnWeights& importance) {
  const Terminal& terminal = arguments.terminal();
  const StepOptions options = step_options(arguments);
  ModelSource plain = source, weighed = source;
  TRY_VOID(quantise_all(team, plain, type_of, nullptr));
  TRY(const Comparison plain_judged, judge_source(plain, *bench.judge, options));
  TRY_VOID(quantise_all(team, weighed, type_of, &importance));
  TRY(Comparison judged, judge_source(weighed, *bench.judge, options));
  const bool better = judged.kl_mean() < plain_judged.kl_mean();
  terminal.note("rounding: KL {:.6f}; by importance {:.6f}{}", plain_judged.kl_mean(), judged.kl_mean(),
                better ? "" : ", which is not kept");
  source = better ? std::move(weighed) : std::move(plain);
  return better ? judged : plain_judged;
}

}  // namespace

std::vector<Flag> method_flags() {
  return joined({{{.name = "method",
                   .kind = Kind::text,
                   .value = "NAME",
                   .otherwise = "round",
                   .choices = "round|gptq",
                   .help = "how codes are chosen, with --calibrate: the nearest, or column by column, each passing its "
                           "error on (gptq)"}},
                 {{.name = "budget",
                   .kind = Kind::number,
                   .value = "BITS",
                   .least = 0.5,
                   .most = 16,
                   .help = "with --calibrate: a format for every matrix so that all weights together take so many bits "
                           "a number, by the KL that each costs"}},
                 calibration_flags()});
}

Result<std::unique_ptr<Bench>> open_bench(const Arguments& arguments, const std::filesystem::path& path) {
  auto bench = std::make_unique<Bench>();
  LoadChoice choice = {.path = path, .context = arguments.integer("ctx")};
  choice.cpu.threads = static_cast<int>(arguments.integer("threads"));
  TRY(bench->teacher, LoadedModel::load(choice));
  TRY(bench->texts, calibration_texts(arguments, *bench->teacher));
  TRY(bench->judge, Judge::make(bench->teacher->model(), bench->teacher->backend(), bench->texts.held_out,
                                static_cast<int>(arguments.integer("threads"))));
  arguments.terminal().note("{} tokens to fit to, {} held out to decide by", tokens_of(bench->texts.fitted),
                            tokens_of(bench->texts.held_out));
  return bench;
}

StepOptions step_options(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  StepOptions options;
  options.student.cpu.threads = static_cast<int>(arguments.integer("threads"));
  options.student.context = arguments.integer("ctx");
  options.progress = [](int64_t) { return !Interruptible::interrupted(); };
  options.listener = [&terminal](const StepReport& step) {
    terminal.note("{:<22} KL {:.6f} -> {:.6f}{}{}", step.what, step.before, step.after, step.kept ? "" : "  not kept",
                  step.ridge > 0.05 ? fmt::format("  (ridge {})", step.ridge) : "");
    return !Interruptible::interrupted();
  };
  return options;
}

Result<ColumnWeights> measured_importance(const Arguments& arguments, Bench& bench, const ModelSource& source) {
  CalibrateOptions options = {.threads = static_cast<int>(arguments.integer("threads"))};
  options.progress = [](int64_t) { return !Interruptible::interrupted(); };
  TRY(const Calibration calibration,
      calibrate(bench.teacher->model(), source, bench.teacher->backend(), bench.texts.fitted, {}, options));
  return ColumnWeights::match(calibration.importance, source, false);
}

Result<std::map<std::string, DType>> allocate_types(const Arguments& arguments, Bench& bench, const ModelSource& source,
                                                    const ColumnWeights& importance) {
  const Terminal& terminal = arguments.terminal();
  TRY_VOID(check_budget(source.spec(), arguments.number("budget")));
  const auto threads = static_cast<int>(arguments.integer("threads"));
  Team team(threads > 0 ? threads : Team::processors());
  // Chosen by some of the text that is fitted to: what is held out only decides what is kept.
  const auto& fitted = bench.texts.fitted;
  TRY(auto judge, Judge::make(bench.teacher->model(), bench.teacher->backend(),
                              std::span(fitted).first(std::min<size_t>(fitted.size(), 8)), threads));
  std::optional<Progress> progress;
  auto measured =
      measure_costs(team, source, importance, *judge, step_options(arguments).student, [&](size_t done, size_t total) {
        if (!progress) progress.emplace(terminal, "measuring", total, Progress::Unit::count);
        progress->update(done);
        return !Interruptible::interrupted();
      });
  progress.reset();
  if (!measured.ok()) return measured.error();
  TRY_VOID(allocate(*measured, arguments.number("budget")));
  std::map<DType, std::pair<int, int64_t>> shares;
  for (const TensorCost& each : measured->tensors) {
    auto& [count, bytes] = shares[each.types[each.chosen]];
    ++count, bytes += each.bytes[each.chosen];
  }
  std::vector<std::string> words;
  for (const auto& [type, share] : shares)
    words.push_back(
        fmt::format("{} {} ({})", share.first, format(type).name, human_bytes(static_cast<uint64_t>(share.second))));
  terminal.note("{:.3f} bits a number: {}; KL foreseen {:.6f}", measured->bits(), fmt::join(words, ", "), measured->kl);
  return measured->types();
}

Result<Comparison> quantise_calibrated(const Arguments& arguments, Bench& bench, ModelSource& source,
                                       const TypeOf& type_of, const ColumnWeights& importance) {
  const auto threads = static_cast<int>(arguments.integer("threads"));
  Team team(threads > 0 ? threads : Team::processors());
  const ModelSource wide = source;
  TRY(Comparison judged, round_all(arguments, bench, team, source, type_of, importance));
  if (arguments.text("method") != "gptq") return judged;
  return quantise_by_gptq(team, wide, source, bench.texts.fitted, *bench.judge, step_options(arguments));
}

}  // namespace millrace::apps
