#include "shrink/prune.h"

#include <algorithm>

#include "apps/cli/flags.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/files/writing.h"
#include "apps/shrink/calibrated.h"
#include "apps/shrink/rewriting.h"
#include "apps/shrink/texts.h"
#include "shrink/heal.h"

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

Result<std::vector<int32_t>> choose(const Arguments& arguments, Bench& bench, const ModelSource& source) {
  const Terminal& terminal = arguments.terminal();
  if (arguments.given("drop")) return kept_without(source.spec(), arguments.integers("drop"));
  const auto remove = static_cast<int32_t>(arguments.integer("layers"));
  if (remove == 0) return all_layers(source.spec());
  // Chosen by text that is fitted to, as little of it as decides: what is held out only measures.
  const auto& fitted = bench.texts.fitted;
  const auto some = std::span(fitted).first(std::min<size_t>(fitted.size(), 24));
  TRY(auto judge, Judge::make(bench.teacher->model(), bench.teacher->backend(), some,
                              static_cast<int>(arguments.integer("threads"))));
  TRY(const DropSearch search,
      choose_layers(source, remove, *judge, step_options(arguments).student, [&](const DropTrial& trial) {
        terminal.note("without layer {:<3} KL {:.6f}", trial.layer, trial.kl);
        return !Interruptible::interrupted();
      }));
  return search.kept;
}

// What products of the source as it is now read on the fitted text.
Result<void> narrow(const Arguments& arguments, Bench& bench, Team& team, ModelSource& source) {
  const StepOptions options = step_options(arguments);
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
    arguments.terminal().note("feed-forward parts of {} columns", width);
  }
  if (!arguments.given("kv-heads")) return {};
  const auto heads = static_cast<int32_t>(arguments.integer("kv-heads"));
  return measured([&](InputSums& sums) { return fewer_kv_heads(source, sums, heads); });
}

Result<Comparison> heal(const Arguments& arguments, Bench& bench, Team& team, ModelSource& source,
                        const std::vector<int32_t>& kept) {
  const StepOptions options = step_options(arguments);
  const auto layers = static_cast<int32_t>(bench.teacher->model().spec().layers.size());
  TRY(auto side, HealBench::make(team, bench.teacher->model(), bench.teacher->backend(), bench.texts.fitted));
  return heal_all(team, *side, source, heal_order(source.spec(), kept, layers), *bench.judge, options);
}

Result<int> prune(const Arguments& arguments, const fs::path& path, const fs::path& target) {
  const Terminal& terminal = arguments.terminal();
  TRY(auto bench, open_bench(arguments, path));
  TRY(const ModelSource original, ModelSource::open(bench->teacher->checkpoint()));
  const auto threads = static_cast<int>(arguments.integer("threads"));
  Team team(threads > 0 ? threads : Team::processors());
  if (arguments.toggle("heal")) TRY_VOID(check_healable(original.spec()));
  TRY(const std::vector<int32_t> kept, choose(arguments, *bench, original));
  ModelSource source = original;
  if (kept.size() < original.spec().layers.size()) {
    TRY_VOID(source.keep_layers(kept));
    terminal.note("layers that stay: {}", fmt::join(kept, ", "));
  }
  TRY_VOID(narrow(arguments, *bench, team, source));
  TRY(Comparison judged, judge_source(source, *bench->judge, step_options(arguments)));
  const Comparison plain = judged;
  if (arguments.toggle("heal")) {
    TRY(judged, heal(arguments, *bench, team, source, kept));
  }
  TRY(ConvertOptions options, same_formats(terminal, original, source, kept));
  options.threads = threads;
  options.name = arguments.text("name");
  TRY(const ConvertReport report, write_model(terminal, source, target, options));
  terminal.note("{}: {} of {} parameters", target.string(), human_count(static_cast<uint64_t>(report.parameters)),
                human_count(static_cast<uint64_t>(parameters(original.spec()))));
  if (arguments.toggle("heal")) print_result(terminal, "not healed", report.bytes, plain);
  print_result(terminal, "result", report.bytes, judged);
  return kExitOk;
}

Result<int> run(const Arguments& arguments) {
  const fs::path path = arguments.operand("IN"), target = arguments.operand("OUT");
  if (arguments.given("width")) {
    return error(Code::unsupported,
                 "--width: a narrower stream needs a matrix between layers that no file has, or loses much; use --ffn, "
                 "--kv-heads or --layers");
  }
  if (arguments.given("layers") && arguments.given("drop"))
    return wrong_use(arguments, "--layers chooses which go and --drop names them: give one of them");
  if (!arguments.given("layers") && !arguments.given("drop") && !arguments.given("ffn") && !arguments.given("kv-heads"))
    return wrong_use(arguments, "nothing to remove: give --layers N, --drop 3,4, --ffn 0.75 or --kv-heads N");
  if (!arguments.given("calibrate"))
    return wrong_use(arguments, "what goes is chosen by a text: give --calibrate TEXT");
  TRY_VOID(check_target(path, target, arguments.toggle("force")));
  Interruptible scope;
  auto done = prune(arguments, path, target);
  if (!done.ok() && Interruptible::interrupted()) return interrupted_error();
  return done;
}

}  // namespace

Verb prune_verb() {
  return {.name = "prune",
          .summary = "remove layers, feed-forward columns or key/value heads, and heal what is left",
          .group = "Make models smaller",
          .operands = {{.name = "IN", .help = "a Hugging Face directory or a GGUF file"},
                       {.name = "OUT", .help = "the GGUF file to write"}},
          .flags =
              joined({{{.name = "layers",
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
                       {.name = "width", .kind = Kind::integer, .value = "N", .help = "not built: see docs/smaller.md"},
                       {.name = "heal",
                        .otherwise = "true",
                        .help = "move what writes to the stream to where the whole model's stream was"},
                       {.name = "name", .kind = Kind::text, .value = "NAME", .help = "the model's name in the file"},
                       {.name = "force", .help = "replace OUT if it is there already"},
                       {.name = "threads",
                        .kind = Kind::integer,
                        .value = "N",
                        .otherwise = "0",
                        .least = 0,
                        .most = 4096,
                        .help = "worker threads; 0 means one per processor"}},
                      calibration_flags()}),
          .examples = {{"prune model.gguf smaller.gguf --layers 2 --calibrate book.txt", "two layers less"},
                       {"prune model.gguf smaller.gguf --ffn 0.75 --calibrate book.txt --no-heal", "without healing"}},
          .notes =
              "The result is an ordinary model of the same architecture. Healing is least squares, layer by layer: no "
              "training. Every step of it is kept only if the KL on held-out text falls.",
          .run = run};
}

}  // namespace millrace::apps
