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

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

// Which of the teacher's layers each of the student's stands for.
Result<std::vector<int32_t>> layer_map(const Arguments& arguments, const ModelSpec& student, const ModelSpec& teacher) {
  if (student.width != teacher.width || student.vocab != teacher.vocab) {
    return error(Code::invalid, "a student of width {} with {} tokens cannot learn from a teacher of {} with {}",
                 student.width, student.vocab, teacher.width, teacher.vocab);
  }
  std::vector<int32_t> map = all_layers(student);
  if (arguments.given("map")) {
    map.clear();
    for (int64_t layer : arguments.integers("map")) map.push_back(static_cast<int32_t>(layer));
  }
  const auto layers = static_cast<int32_t>(teacher.layers.size());
  const bool fits = map.size() == student.layers.size() && std::is_sorted(map.begin(), map.end()) &&
                    std::adjacent_find(map.begin(), map.end()) == map.end() && map.front() >= 0 && map.back() < layers;
  if (fits && (arguments.given("map") || student.layers.size() == teacher.layers.size())) return map;
  return error(Code::invalid,
               "the student has {} layers and the teacher {}: say with --map which of the teacher's each stands for, "
               "ascending, such as --map 0,1,3",
               student.layers.size(), layers);
}

Result<int> distil(const Arguments& arguments, const fs::path& path, const fs::path& target) {
  const Terminal& terminal = arguments.terminal();
  TRY(const Checkpoint checkpoint, Checkpoint::open(path));
  TRY(const ModelSource original, ModelSource::open(checkpoint));
  TRY(auto bench, open_bench(arguments, arguments.operand("TEACHER")));
  const Model& teacher = bench->teacher->model();
  TRY_VOID(check_healable(original.spec()));
  TRY_VOID(check_healable(teacher.spec()));
  TRY(const std::vector<int32_t> map, layer_map(arguments, original.spec(), teacher.spec()));
  const Writing writing = writing_of(arguments);
  Team team(writing.workers);
  TRY_VOID(open_journal(
      arguments, *bench, target,
      fmt::format("distil {} {} {}", fs::absolute(path).string(), checkpoint.file_bytes(), fmt::join(map, ","))));
  const StepOptions options = step_options(arguments, *bench);
  ModelSource student = original;
  TRY(const Comparison before, judge_source(student, *bench->judge, options));
  TRY(auto side, HealBench::make(team, teacher, bench->teacher->backend(), bench->texts.fitted));
  TRY(const ModelSource taught_by, ModelSource::open(bench->teacher->checkpoint()));
  TRY_VOID(walk_if_possible(taught_by, options, *side));
  const auto order = heal_order(student.spec(), map, static_cast<int32_t>(teacher.spec().layers.size()));
  TRY_VOID(heal_all(team, *side, student, order, bench->decider(), options));
  TRY(const Comparison after, judge_source(student, *bench->judge, options));
  TRY(ConvertOptions write, same_formats(terminal, original, student, all_layers(student.spec())));
  write.threads = writing.threads;
  write.name = writing.name;
  TRY(const ConvertReport report, write_model(terminal, student, target, write));
  bench->journal->remove();
  TRY_VOID(
      print_ending(arguments, {.stages = {{"before", checkpoint.file_bytes(), before}, {"result", report.bytes, after}},
                               .before = nullptr,
                               .before_path = path,
                               .after = target}));
  return kExitOk;
}

Result<int> run_distil(const Arguments& arguments) {
  const fs::path path = arguments.operand("STUDENT"), target = arguments.operand("OUT");
  if (!arguments.given("calibrate")) return wrong_use(arguments, "a student learns from a text: give --calibrate TEXT");
  TRY_VOID(check_target(path, target, writing_of(arguments).replace));
  Interruptible scope;
  auto done = distil(arguments, path, target);
  if (!done.ok() && Interruptible::interrupted()) return say_stopped(arguments, target);
  return done;
}

}  // namespace

Verb distil_verb() {
  return {.name = "distil",
          .summary = "bring a quantised or pruned model nearer to the one it came from, in closed form",
          .group = "Make models smaller",
          .operands = {{.name = "STUDENT", .help = "the smaller model, a GGUF file"},
                       {.name = "TEACHER", .help = "the model it should be like"},
                       {.name = "OUT", .help = "the GGUF file to write"}},
          .flags = joined({{{.name = "map",
                             .kind = Kind::integer,
                             .value = "LIST",
                             .many = Many::commas,
                             .help = "of a student with fewer layers: the teacher's layer that each stands for"}},
                           writing_flags(),
                           calibration_flags()}),
          .examples = {{"distil model-q4.gguf model-bf16.gguf healed-q4.gguf --calibrate book.txt",
                        "the same bytes, nearer to the original"}},
          .notes =
              "Matrices that write to the stream are moved by least squares, layer by layer, and quantised again "
              "in their own format by GPTQ. A step is kept only if the KL on held-out text falls.",
          .run = run_distil};
}

}  // namespace millrace::apps
