#include "shrink/prune.h"

#include <algorithm>

#include "apps/cli/flags.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/files/writing.h"
#include "apps/shrink/calibrated.h"
#include "apps/shrink/ending.h"
#include "apps/shrink/rewriting.h"
#include "apps/shrink/texts.h"
#include "shrink/heal.h"
#include "shrink/width.h"

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

// "3,4": the layers that stay if these go.
Result<std::vector<int32_t>> kept_without(const ModelSpec& spec, const std::vector<int64_t>& dropped) {
  std::vector<int32_t> kept = all_layers(spec);
  for (int64_t layer : dropped) {
    if (layer < 0 || layer >= static_cast<int64_t>(spec.layers.size()))
      return error(Code::invalid, "--drop {}: the model has layers 0 to {}", layer, spec.layers.size() - 1);
    std::erase(kept, static_cast<int32_t>(layer));
  }
  return kept;
}

// A judge over text that is fitted to, as little of it as decides: what is held out only measures.
Result<std::unique_ptr<Judge>> choosing_judge(const Arguments& arguments, Bench& bench) {
  const auto& fitted = bench.texts.fitted;
  return Judge::make(bench.teacher->model(), bench.teacher->backend(),
                     std::span(fitted).first(std::min<size_t>(fitted.size(), 24)), writing_of(arguments).threads);
}

// What others would drop, by how little a layer turns the stream; kept if it is the better choice.
Result<void> compare_influence(const Arguments& arguments, Bench& bench, const ModelSource& source, Judge& judge,
                               DropSearch& search) {
  if (!check_healable(source.spec()).ok()) return {};  // a layer is not two halves that are added
  const StepOptions options = step_options(arguments, bench);
  const auto remove = static_cast<int32_t>(source.spec().layers.size() - search.kept.size());
  TRY(const Loaded whole, load_student(source, options.student));
  TRY(const std::vector<double> influence, layer_influence(whole, judge.texts(), options.progress));
  const std::vector<int32_t> kept = kept_by_influence(influence, remove);
  ModelSource less = source;
  TRY_VOID(less.keep_layers(kept));
  TRY(const Comparison judged, judge_source(less, judge, options));
  double least = 0;
  for (const DropTrial& trial : search.rounds.back()) {
    if (std::find(search.kept.begin(), search.kept.end(), trial.layer) == search.kept.end()) least = trial.kl;
  }
  const bool better = judged.kl_mean() < least;
  arguments.terminal().note("chosen by KL: {} stay, KL {:.6f}; Block Influence would keep {}: KL {:.6f}{}",
                            fmt::join(search.kept, ", "), least, fmt::join(kept, ", "), judged.kl_mean(),
                            better ? ", which is less and taken" : "");
  if (better) search.kept = kept;
  return {};
}

Result<std::vector<int32_t>> choose(const Arguments& arguments, Bench& bench, const ModelSource& source) {
  const Terminal& terminal = arguments.terminal();
  if (arguments.given("drop")) return kept_without(source.spec(), arguments.integers("drop"));
  const auto remove = static_cast<int32_t>(arguments.integer("layers"));
  if (remove == 0) return all_layers(source.spec());
  TRY(auto judge, choosing_judge(arguments, bench));
  TRY(DropSearch search, choose_layers(
                             source, remove, *judge, step_options(arguments, bench).student,
                             [&](const DropTrial& trial) {
                               terminal.note("without layer {:<3} KL {:.6f}", trial.layer, trial.kl);
                               return !Interruptible::interrupted();
                             },
                             bench.journal.get()));
  TRY_VOID(compare_influence(arguments, bench, source, *judge, search));
  return search.kept;
}

// What products of the source as it is now read on the fitted text.
Result<void> narrow(const Arguments& arguments, Bench& bench, Team& team, ModelSource& source) {
  const StepOptions options = step_options(arguments, bench);
  auto measured = [&](const std::function<Result<void>(InputSums & sums)>& use) -> Result<void> {
    TRY(const Loaded loaded, load_student(source, options.student));
    TRY(auto sums, InputSums::make(*loaded.model, *loaded.backend, team, nullptr));
    ObservedBackend observed(*loaded.backend, *sums);
    const auto& texts = bench.texts.fitted;
    TRY(auto executor, Executor::create(*loaded.model, observed, scoring_options(texts, loaded.model->spec().vocab)));
    TRY_VOID(run_pass(*executor, texts, options.progress));
    if (!sums->broken().empty()) return error(Code::corrupt, "{}: what it reads is not finite", sums->broken());
    return use(*sums);
  };
  if (arguments.given("ffn")) {
    TRY(const int32_t width, ffn_width(source.spec(), arguments.number("ffn")));
    TRY_VOID(measured([&](InputSums& sums) { return narrow_ffn(source, sums, width); }));
    arguments.terminal().note("feed-forward parts of {}", counted(width, "column"));
  }
  if (!arguments.given("kv-heads")) return {};
  const auto heads = static_cast<int32_t>(arguments.integer("kv-heads"));
  return measured([&](InputSums& sums) { return fewer_kv_heads(source, sums, heads); });
}

// The stream's width, by turning or by choosing, whichever is nearer to the teacher.
Result<Narrowing> narrow_width(const Arguments& arguments, Bench& bench, Team& team, ModelSource& source) {
  const StepOptions options = step_options(arguments, bench);
  const int64_t width = arguments.integer("width");
  TRY_VOID(check_narrowable(source.spec()));
  ModelSource folded = source;
  TRY_VOID(fold_norms(folded));
  TRY(auto judge, choosing_judge(arguments, bench));
  TRY(const Loaded loaded, load_student(folded, options.student));
  TRY(const StreamSums sums, sum_stream(team, loaded, bench.texts.fitted, options.progress));
  if (sums.rows < source.spec().width)
    arguments.terminal().warn("{} of text for a stream of {} numbers: directions that the text does not show go",
                              counted(sums.rows, "row"), source.spec().width);
  const auto shown = judge->texts();  // how much of the stream stays is a mean, and needs no more
  TRY(Narrowing turn, turned(team, source.spec(), sums, width));
  TRY_VOID(measure_kept(team, loaded, shown, turn, options.progress));
  ModelSource one = folded;
  TRY_VOID(narrow_stream(team, one, turn));
  TRY(const Comparison by_turning, judge_source(one, *judge, options));
  if (source.spec().final_norm->kind != NormKind::rms) {
    arguments.terminal().note("width {}: KL {:.6f} turned", width, by_turning.kl_mean());
    source = std::move(one);
    return turn;
  }
  TRY(Narrowing choice, chosen(folded, sums, width));
  TRY_VOID(measure_kept(team, loaded, shown, choice, options.progress));
  ModelSource two = source;
  TRY_VOID(narrow_stream(team, two, choice));
  TRY(const Comparison by_choosing, judge_source(two, *judge, options));
  const bool turns = by_turning.kl_mean() <= by_choosing.kl_mean();
  arguments.terminal().note("width {}: KL {:.6f} turned, {:.6f} with the {} numbers that are read most; {}", width,
                            by_turning.kl_mean(), by_choosing.kl_mean(), width, turns ? "turned" : "chosen");
  source = turns ? std::move(one) : std::move(two);
  return turns ? turn : choice;
}

// Without the steps of layers that are the teacher's own, with the teacher's own before and after them.
void leave_out_unchanged(const std::vector<int32_t>& kept, std::vector<std::vector<HealPair>>& steps) {
  int32_t same = 0;
  while (same + 1 < static_cast<int32_t>(kept.size()) && kept[static_cast<size_t>(same) + 1] == same + 1) ++same;
  if (kept.front() != 0) return;
  std::erase_if(steps, [&](const std::vector<HealPair>& step) {
    for (int32_t layer = 0; layer < same; ++layer) {
      if (step.front().slot.starts_with(fmt::format("blk.{}.", layer))) return true;
    }
    return false;
  });
}

Result<Comparison> heal(const Arguments& arguments, Bench& bench, Team& team, const ModelSource& original,
                        ModelSource& source, const std::vector<int32_t>& kept,
                        const std::optional<Narrowing>& narrowing) {
  const StepOptions options = step_options(arguments, bench);
  const ModelSpec& teacher = bench.teacher->model().spec();
  TRY(auto side, HealBench::make(team, bench.teacher->model(), bench.teacher->backend(), bench.texts.fitted));
  if (narrowing) side->narrow(narrowing->rows);
  TRY_VOID(walk_if_possible(original, options, *side));
  auto steps = heal_steps(source.spec(), teacher, kept);
  if (!arguments.given("ffn") && !arguments.given("kv-heads") && !narrowing) leave_out_unchanged(kept, steps);
  TRY_VOID(heal_all(team, *side, source, steps, bench.decider(), options));
  return judge_source(source, *bench.judge, options);
}

Result<void> check_bearable(const Arguments& arguments, const Comparison& judged) {
  if (!arguments.given("width") || judged.kl_mean() <= arguments.number("most-kl")) return {};
  return error(Code::invalid,
               "a stream of {} numbers has a KL of {:.4f} +- {:.4f} nats and a perplexity of {:.4f} instead of {:.4f}: "
               "more than the {} that --most-kl allows, so nothing was written; remove layers or columns instead, or "
               "allow more",
               arguments.integer("width"), judged.kl_mean(), judged.kl_error(), judged.variant_perplexity(),
               judged.base_perplexity(), arguments.number("most-kl"));
}

// Flags that decide what comes out.
std::string deciding_flags(const Arguments& arguments) {
  return fmt::format("prune {} {} {} {} {} {}", fmt::join(arguments.integers("drop"), ","), arguments.integer("layers"),
                     arguments.given("ffn") ? arguments.number("ffn") : 0, arguments.integer("kv-heads"),
                     arguments.integer("width"), arguments.toggle("heal"));
}

// What was written, judged as it lies there: rounding to the file's formats is in the figures.
Result<Comparison> judge_file(const Arguments& arguments, Bench& bench, const fs::path& target) {
  TRY(const Checkpoint file, Checkpoint::open(target));
  TRY(const ModelSource source, ModelSource::open(file));
  return judge_source(source, *bench.judge, step_options(arguments, bench));
}

Result<int> prune(const Arguments& arguments, const fs::path& path, const fs::path& target) {
  const Terminal& terminal = arguments.terminal();
  TRY(auto bench, open_bench(arguments, path));
  TRY(const ModelSource original, ModelSource::open(bench->teacher->checkpoint()));
  const Writing writing = writing_of(arguments);
  Team team(writing.workers);
  if (arguments.toggle("heal")) TRY_VOID(check_healable(original.spec()));
  if (arguments.given("width")) {
    TRY_VOID(check_narrowable(original.spec()));
    TRY_VOID(check_width(original, arguments.integer("width")));
  }
  TRY_VOID(open_journal(arguments, *bench, target, deciding_flags(arguments)));
  TRY(const std::vector<int32_t> kept, choose(arguments, *bench, original));
  ModelSource source = original;
  if (kept.size() < original.spec().layers.size()) {
    TRY_VOID(source.keep_layers(kept));
    terminal.note("layers that stay: {}", fmt::join(kept, ", "));
  }
  TRY_VOID(narrow(arguments, *bench, team, source));
  std::optional<Narrowing> narrowing;
  if (arguments.given("width")) {
    TRY(narrowing, narrow_width(arguments, *bench, team, source));
  }
  TRY(Comparison judged, judge_source(source, *bench->judge, step_options(arguments, *bench)));
  const Comparison plain = judged;
  if (arguments.toggle("heal")) {
    TRY(judged, heal(arguments, *bench, team, original, source, kept, narrowing));
  }
  TRY_VOID(check_bearable(arguments, judged));
  TRY(ConvertOptions options, same_formats(terminal, original, source, kept));
  options.threads = writing.threads;
  options.name = writing.name;
  TRY(const ConvertReport report, write_model(terminal, source, target, options));
  bench->journal->remove();
  terminal.note("{}: {} of {} parameters", target.string(), human_count(static_cast<uint64_t>(report.parameters)),
                human_count(static_cast<uint64_t>(parameters(original.spec()))));
  TRY(judged, judge_file(arguments, *bench, target));
  Ending ending = {.stages = {}, .before = bench->teacher.get(), .before_path = {}, .after = target};
  if (arguments.toggle("heal")) ending.stages.push_back({"not healed", report.bytes, plain});
  ending.stages.push_back({"result", report.bytes, judged});
  TRY_VOID(print_ending(arguments, ending));
  return kExitOk;
}

Result<int> run_prune(const Arguments& arguments) {
  const fs::path path = arguments.operand("IN"), target = arguments.operand("OUT");
  if (arguments.given("layers") && arguments.given("drop"))
    return wrong_use(arguments, "--layers chooses which go and --drop names them: give one of them");
  bool any = false;
  for (std::string_view flag : {"layers", "drop", "ffn", "kv-heads", "width"}) any |= arguments.given(flag);
  if (!any)
    return wrong_use(arguments,
                     "nothing to remove: give --layers N, --drop 3,4, --ffn 0.75, --kv-heads N or --width N");
  if (!arguments.given("calibrate"))
    return wrong_use(arguments, "what goes is chosen by a text: give --calibrate TEXT");
  TRY_VOID(check_target(path, target, writing_of(arguments).replace));
  Interruptible scope;
  auto done = prune(arguments, path, target);
  if (!done.ok() && Interruptible::interrupted()) return say_stopped(arguments, target);
  return done;
}

}  // namespace

Verb prune_verb() {
  return {.name = "prune",
          .summary = "remove layers, feed-forward columns, key/value heads or width, and heal what is left",
          .group = "Make models smaller",
          .operands = {{.name = "IN", .help = "a Hugging Face directory or a GGUF file"},
                       {.name = "OUT", .help = "the GGUF file to write"}},
          .flags = joined({{{.name = "layers",
                             .kind = Kind::integer,
                             .value = "N",
                             .least = 1,
                             .most = 100000,
                             .help = "remove N layers, one by one the one whose removal costs the least KL"},
                            {.name = "drop",
                             .kind = Kind::integer,
                             .value = "LIST",
                             .many = Many::commas,
                             .help = "remove these layers, counted from 0: 3,4"},
                            {.name = "ffn",
                             .kind = Kind::number,
                             .value = "SHARE",
                             .least = 0.05,
                             .most = 0.99,
                             .help = "keep so much of the feed-forward parts' width, the columns that count most"},
                            {.name = "kv-heads",
                             .kind = Kind::integer,
                             .value = "N",
                             .least = 1,
                             .most = 100000,
                             .help = "keep N key/value heads of each layer, with the queries that read them"},
                            {.name = "width",
                             .kind = Kind::integer,
                             .value = "N",
                             .least = 1,
                             .most = 1000000,
                             .help = "keep N numbers of the stream between layers: the directions that carry most"},
                            {.name = "most-kl",
                             .kind = Kind::number,
                             .value = "NATS",
                             .otherwise = "1",
                             .least = 0,
                             .most = 1000,
                             .help = "with --width: write nothing if the KL is above that"},
                            {.name = "heal",
                             .otherwise = "true",
                             .help = "move what writes to the stream to where the whole model's stream was"}},
                           writing_flags(),
                           calibration_flags()}),
          .examples = {{"prune model.gguf smaller.gguf --layers 2 --calibrate book.txt", "two layers less"},
                       {"prune model.gguf smaller.gguf --ffn 0.75 --calibrate book.txt --no-heal", "without healing"}},
          .notes =
              "The result is an ordinary model of the same architecture. Healing is least squares, layer by layer: no "
              "training. Every step of it is kept only if the KL on held-out text falls. An interrupted run leaves "
              "OUT.part, and "
              "the same command goes on from there with the same result.",
          .run = run_prune};
}

}  // namespace millrace::apps
