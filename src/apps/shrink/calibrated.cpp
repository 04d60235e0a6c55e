#include "apps/shrink/calibrated.h"

#include <algorithm>

#include "apps/cli/flags.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"
#include "apps/shrink/texts.h"
#include "cache/identity.h"
#include "shrink/allocate.h"
#include "shrink/awq.h"
#include "shrink/calibrate.h"

namespace millrace::apps {
namespace {

std::filesystem::path part_of(std::filesystem::path target) { return target += ".part"; }

struct Rounded {
  Comparison judged;
  bool weighed = false;  // by importance
};

// Matrices rounded by importance, or as if all columns counted alike, whichever is nearer to the teacher.
Result<Rounded> round_all(const Arguments& arguments, Bench& bench, Team& team, Student& student,
                          const Rounding& rounding, const ColumnWeights& importance, const StepOptions& options) {
  const Terminal& terminal = arguments.terminal();
  const ModelSource wide = student.source;
  Student plain = student, weighed = student;
  TRY_VOID(round_matrices(team, wide, {}, rounding, nullptr, nullptr, plain));
  TRY(Trial first, try_out(std::move(plain), *bench.judge, options));
  first.loaded = {};
  TRY_VOID(round_matrices(team, wide, {}, rounding, &importance, nullptr, weighed));
  TRY(Trial second, try_out(std::move(weighed), *bench.judge, options));
  const bool better = second.judged.kl_mean() < first.judged.kl_mean();
  terminal.note("rounding: KL {:.6f}; by importance {:.6f}{}", first.judged.kl_mean(), second.judged.kl_mean(),
                better ? "" : ", which is not kept");
  Trial& kept = better ? second : first;
  student = std::move(kept.student);
  return Rounded{std::move(kept.judged), better};
}

void say_left_out(const Terminal& terminal, const FoldPlan& plan) {
  terminal.note("{} groups of columns can be folded", plan.groups.size());
  for (const std::string& each : plan.left_out) terminal.note("left out: {}", each);
}

}  // namespace

std::vector<Flag> method_flags() {
  return joined({{{.name = "method",
                   .kind = Kind::text,
                   .value = "NAME",
                   .otherwise = "round",
                   .choices = "round|gptq|awq|awq-gptq|smoothquant",
                   .help = "with --calibrate: codes are the nearest, or chosen column by column, each passing its "
                           "error on (gptq); columns that matter are made larger before, folded into norms (awq); "
                           "outliers of inputs folded into weights, for products of 8 bits by 8 (smoothquant)"}},
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

Result<void> open_journal(const Arguments& arguments, Bench& bench, const std::filesystem::path& target,
                          std::string_view flags) {
  Digest digest;
  const Checkpoint& checkpoint = bench.teacher->checkpoint();
  digest.add_sized(std::filesystem::absolute(checkpoint.path()).string());
  digest.add_sized(fmt::format("{} {}", checkpoint.file_bytes(), bench.teacher->backend().description()));
  digest.add_sized(flags);
  for (const auto* texts : {&bench.texts.fitted, &bench.texts.held_out}) {
    for (const ScoredText& text : *texts)
      digest.add_sized({reinterpret_cast<const char*>(text.tokens.data()), text.tokens.size() * sizeof(Token)});
  }
  std::string of;
  for (uint8_t byte : digest.finish().bytes) of += fmt::format("{:02x}", byte);
  TRY(bench.journal, Journal::open(part_of(target), of));
  if (bench.journal->found() > 0)
    arguments.terminal().note("going on after {} steps of an earlier run", bench.journal->found());
  return {};
}

Error say_stopped(const Arguments& arguments, const std::filesystem::path& target) {
  std::error_code ignored;
  if (std::filesystem::exists(part_of(target), ignored))
    arguments.terminal().note("what was done is in {}; the same command goes on", part_of(target).string());
  return interrupted_error();
}

StepOptions step_options(const Arguments& arguments, const Bench& bench) {
  const Terminal& terminal = arguments.terminal();
  StepOptions options;
  options.student.cpu.threads = static_cast<int>(arguments.integer("threads"));
  options.student.context = arguments.integer("ctx");
  options.journal = bench.journal.get();
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
  auto measured = measure_costs(
      team, source, importance, *judge, step_options(arguments, bench).student,
      [&](size_t done, size_t total) {
        if (!progress) progress.emplace(terminal, "measuring", total, Progress::Unit::count);
        progress->update(done);
        return !Interruptible::interrupted();
      },
      bench.journal.get());
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

Result<Comparison> quantise_calibrated(const Arguments& arguments, Bench& bench, Student& student,
                                       const Rounding& rounding, const FoldPlan& plan,
                                       const ColumnWeights& importance) {
  const auto threads = static_cast<int>(arguments.integer("threads"));
  const std::string method = arguments.text("method");
  Team team(threads > 0 ? threads : Team::processors());
  const ModelSource wide = student.source;
  StepOptions options = step_options(arguments, bench);
  options.rounded_inputs = method == "smoothquant";
  if (options.rounded_inputs) arguments.terminal().note("judged with inputs rounded to 8 bits, token by token");
  TRY(Rounded rounded, round_all(arguments, bench, team, student, rounding, importance, options));
  const ColumnWeights* by = rounded.weighed ? &importance : nullptr;
  const auto& texts = bench.texts.fitted;
  Folds folds(arguments.text("to") != "gguf");
  if (method.starts_with("awq")) {
    say_left_out(arguments.terminal(), plan);
    TRY(rounded.judged, quantise_by_awq(team, wide, plan, student, folds, rounding, by, texts, *bench.judge, options));
  }
  if (method == "smoothquant") {
    say_left_out(arguments.terminal(), plan);
    TRY(rounded.judged, quantise_by_smoothing(team, bench.teacher->model(), bench.teacher->backend(), wide, student,
                                              plan, folds, rounding, by, texts, *bench.judge, options));
  }
  if (!method.ends_with("gptq")) return rounded.judged;
  options.folds = &folds;
  return quantise_by_gptq(team, wide, student, rounding, texts, *bench.judge, options);
}

}  // namespace millrace::apps
