#include "apps/shrink/calibrated.h"

#include <algorithm>

#include "apps/cli/flags.h"
#include "apps/cli/host.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"
#include "apps/files/writing.h"
#include "apps/shrink/texts.h"
#include "cache/identity.h"
#include "shrink/allocate.h"
#include "shrink/awq.h"
#include "shrink/calibrate.h"

namespace millrace::apps {
namespace {

constexpr int64_t kDecidedBy = 2048;  // tokens of held-out text that a step is decided by

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
  TRY(Trial first, try_out(std::move(plain), bench.decider(), options));
  first.loaded = {};
  TRY_VOID(round_matrices(team, wide, {}, rounding, &importance, nullptr, weighed));
  TRY(Trial second, try_out(std::move(weighed), bench.decider(), options));
  const bool better = second.judged.kl_mean() < first.judged.kl_mean();
  terminal.note("rounding: KL {:.6f}; by importance {:.6f}{}", first.judged.kl_mean(), second.judged.kl_mean(),
                better ? "" : ", which is not kept");
  Trial& kept = better ? second : first;
  student = std::move(kept.student);
  return Rounded{std::move(kept.judged), better};
}

// What models and sums may take together: --memory-limit, or what the machine has free.
int64_t room_of(const Arguments& arguments) {
  if (const int64_t chosen = arguments.integer("memory-limit"); chosen != 0) return chosen;
  const Host host = probe_host();
  return static_cast<int64_t>(std::min(host.memory_available, host.memory_limit.value_or(INT64_MAX)));
}

// Beside the teacher.
int64_t room_left(const Arguments& arguments, const Bench& bench) {
  int64_t taken = 0;
  for (int i = 0; i < kPurposes; ++i) taken += bench.teacher->backend().used(static_cast<Purpose>(i));
  return std::max<int64_t>(1, arguments.integer("memory-limit") != 0 ? room_of(arguments) - taken : room_of(arguments));
}

void say_left_out(const Terminal& terminal, const ModelSpec& spec, const Rounding& rounding, const FoldPlan& plan) {
  terminal.note("{} of columns can be folded", counted(static_cast<int64_t>(plan.groups.size()), "group"));
  for (const std::string& each : plan.left_out) terminal.note("left out: {}", each);
  for (const Slot& slot : slots(spec)) {
    if (slot.name == "output" && rounding.takes(slot)) terminal.note("left out: the head, which is rounded as it is");
  }
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
  choice.memory_limit = room_of(arguments);
  choice.cpu.threads = writing_of(arguments).threads;
  TRY(bench->teacher, LoadedModel::load(choice));
  TRY(bench->texts, calibration_texts(arguments, *bench->teacher));
  TRY(bench->judge, Judge::make(bench->teacher->model(), bench->teacher->backend(), bench->texts.held_out,
                                writing_of(arguments).threads));
  const auto& held_out = bench->texts.held_out;
  size_t texts = 0;
  while (texts < held_out.size() && tokens_of(std::span(held_out).first(texts)) < kDecidedBy) ++texts;
  if (texts < held_out.size()) {
    TRY(bench->some, Judge::make(bench->teacher->model(), bench->teacher->backend(), std::span(held_out).first(texts),
                                 writing_of(arguments).threads));
  }
  arguments.terminal().note("{} to fit to, {} held out; steps are decided by {} of these",
                            counted(tokens_of(bench->texts.fitted), "token"), tokens_of(held_out),
                            bench->decider().tokens());
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
    arguments.terminal().note("going on after {} of an earlier run",
                              counted(static_cast<int64_t>(bench.journal->found()), "step"));
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
  options.student.cpu.threads = writing_of(arguments).threads;
  options.student.context = arguments.integer("ctx");
  options.student.memory_limit = room_left(arguments, bench);
  options.journal = bench.journal.get();
  options.progress = [](int64_t) { return !Interruptible::interrupted(); };
  options.listener = [&terminal](const StepReport& step) {
    terminal.note("{:<22} KL {:.6f} -> {:.6f}{}{}", step.what, step.before, step.after, step.kept ? "" : "  not kept",
                  step.ridge > 0.05 ? fmt::format("  (ridge {})", step.ridge) : "");
    return !Interruptible::interrupted();
  };
  return options;
}

Result<void> walk_if_possible(const ModelSource& teacher, const StepOptions& options, HealBench& bench) {
  if (!LayerWalk::check(teacher.spec()).ok()) return {};  // then both run whole: slower, the same numbers
  return bench.walk(teacher, options.student);
}

Result<ColumnWeights> measured_importance(const Arguments& arguments, Bench& bench, const ModelSource& source) {
  CalibrateOptions options = {.threads = writing_of(arguments).threads};
  options.progress = [](int64_t) { return !Interruptible::interrupted(); };
  TRY(const Calibration calibration,
      calibrate(bench.teacher->model(), source, bench.teacher->backend(), bench.texts.fitted, {}, options));
  return ColumnWeights::match(calibration.importance, source, false);
}

Result<std::map<std::string, DType>> allocate_types(const Arguments& arguments, Bench& bench, const ModelSource& source,
                                                    const ColumnWeights& importance) {
  const Terminal& terminal = arguments.terminal();
  TRY_VOID(check_budget(source.spec(), arguments.number("budget")));
  const Writing writing = writing_of(arguments);
  Team team(writing.workers);
  // Chosen by some of the text that is fitted to: what is held out only decides what is kept.
  const auto& fitted = bench.texts.fitted;
  TRY(auto judge, Judge::make(bench.teacher->model(), bench.teacher->backend(),
                              std::span(fitted).first(std::min<size_t>(fitted.size(), 8)), writing.threads));
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
  const std::string method = arguments.text("method");
  Team team(writing_of(arguments).workers);
  const ModelSource wide = student.source;
  StepOptions options = step_options(arguments, bench);
  options.rounded_inputs = method == "smoothquant";
  if (options.rounded_inputs) arguments.terminal().note("judged with inputs rounded to 8 bits, token by token");
  TRY(Rounded rounded, round_all(arguments, bench, team, student, rounding, importance, options));
  const ColumnWeights* by = rounded.weighed ? &importance : nullptr;
  const auto& texts = bench.texts.fitted;
  Folds folds(arguments.text("to") != "gguf");
  if (method.starts_with("awq")) {
    say_left_out(arguments.terminal(), wide.spec(), rounding, plan);
    TRY(rounded.judged,
        quantise_by_awq(team, wide, plan, student, folds, rounding, by, texts, bench.decider(), options));
  }
  if (method == "smoothquant") {
    say_left_out(arguments.terminal(), wide.spec(), rounding, plan);
    TRY(rounded.judged, quantise_by_smoothing(team, bench.teacher->model(), bench.teacher->backend(), wide, student,
                                              plan, folds, rounding, by, texts, bench.decider(), options));
  }
  if (method.ends_with("gptq")) {
    options.folds = &folds;
    TRY(rounded.judged, quantise_by_gptq(team, wide, student, rounding, texts, bench.decider(), options));
  }
  if (bench.some == nullptr) return rounded.judged;
  TRY(Trial all, try_out(student, *bench.judge, options));
  return std::move(all.judged);
}

}  // namespace millrace::apps
