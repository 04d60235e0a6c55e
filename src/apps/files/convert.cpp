#include "model/convert.h"

#include <algorithm>
#include <map>
#include <system_error>

#include "apps/cli/flags.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/summary.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/files/writing.h"
#include "apps/shrink/calibrated.h"
#include "apps/shrink/ending.h"
#include "apps/shrink/tensor_types.h"
#include "apps/shrink/texts.h"
#include "apps/shrink/to_directory.h"
#include "model/source.h"
#include "shrink/imatrix.h"
#include "tensor/checkpoint.h"

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

// Without --type, numbers stay as they are as far as GGUF has them; what is quantised already needs a decision.
Result<FileType> chosen_type(const Arguments& arguments, const Checkpoint& checkpoint) {
  if (arguments.given("type")) return FileType::parse(arguments.text("type"));
  if (arguments.given("budget")) return FileType::parse("Q4_K_M");
  TRY(Summary summary, summarise(checkpoint));
  DType most = summary.types.empty() ? DType::f16 : summary.types.front().type;
  if (most == DType::bf16) return FileType::parse("BF16");
  if (most == DType::f16 || most == DType::f32) return FileType::parse("F16");
  return error(Code::invalid, "the weights are already {}: say with --type what they should become", format(most).name);
}

// Formats and importance of single matrices.
struct Choices {
  std::map<std::string, DType> types;  // by slot
  std::optional<ColumnWeights> importance;
};

Result<void> set_types(const Arguments& arguments, const ModelSource& source, Choices& choices) {
  if (!arguments.given("tensor-type")) return {};
  const std::vector<Slot> all = slots(source.spec());
  TRY(const auto types, tensor_types(source, all, arguments.texts("tensor-type")));
  for (size_t i = 0; i < all.size(); ++i) {
    if (types[i]) choices.types[all[i].name] = *types[i];
  }
  return {};
}

Result<void> set_importance(const Arguments& arguments, const ModelSource& source, Choices& choices,
                            ConvertOptions& options) {
  if (!arguments.given("imatrix")) return {};
  TRY(const Checkpoint file, Checkpoint::open(arguments.text("imatrix")));
  TRY(const Importance importance, read_importance(file));
  TRY(choices.importance, ColumnWeights::match(importance, source, true));
  const Terminal& terminal = arguments.terminal();
  terminal.note("importance of {}, {} each", counted(choices.importance->matched(), "matrix", "matrices"),
                counted(static_cast<int64_t>(importance.tensors.front().counts.front()), "token"));
  if (choices.importance->missing() > 0)
    terminal.note("{} not in {}: every column counts alike there",
                  counted(choices.importance->missing(), "matrix is", "matrices are"), arguments.text("imatrix"));
  options.importance = [&choices](const Slot& slot, int64_t expert) { return choices.importance->of(slot, expert); };
  return {};
}

// With a text: importance, formats under a budget, and codes, as the flags say.
Result<Comparison> quantise(const Arguments& arguments, Bench& bench, ModelSource& source, Choices& choices,
                            const ConvertOptions& options) {
  TRY_VOID(open_journal(arguments, bench, arguments.operand("OUT"),
                        fmt::format("convert {} {} {} {} {}", arguments.text("type"), arguments.text("method"),
                                    arguments.given("budget") ? arguments.number("budget") : 0,
                                    fmt::join(arguments.texts("tensor-type"), " "), arguments.text("imatrix"))));
  if (!choices.importance) {
    TRY(choices.importance, measured_importance(arguments, bench, source));
  }
  if (arguments.given("budget")) {
    TRY(const auto types, allocate_types(arguments, bench, source, *choices.importance));
    choices.types.insert(types.begin(), types.end());  // what --tensor-type says stays
  }
  const TypeOf type_of = [&](const Slot& slot) {
    return options.type_of(slot).value_or(stored_type(source.spec(), slot, options.type));
  };
  Student student = {.source = source, .codes = {}};
  TRY(Comparison judged, quantise_calibrated(arguments, bench, student, FormatRounding(type_of),
                                             fold_plan(source.spec()), *choices.importance));
  source = std::move(student.source);
  return judged;
}

Result<int> run_convert(const Arguments& arguments) {
  if (arguments.text("to") != "gguf") return convert_to_directory(arguments);
  if (arguments.given("bits") || arguments.given("group") || arguments.toggle("sym"))
    return wrong_use(arguments, "--bits, --group and --sym go with --to gptq, awq or compressed-tensors");
  fs::path path = arguments.operand("IN"), target = arguments.operand("OUT");
  TRY(Checkpoint checkpoint, Checkpoint::open(path));
  ConvertOptions options;
  TRY(options.type, chosen_type(arguments, checkpoint));
  const Writing writing = writing_of(arguments);
  TRY_VOID(check_target(path, target, writing.replace));
  options.name = writing.name;
  options.threads = writing.threads;
  const Terminal& terminal = arguments.terminal();
  TRY_VOID(set_text_keys(terminal, checkpoint, options));
  TRY(ModelSource source, ModelSource::open(checkpoint));
  Choices choices;
  TRY_VOID(set_types(arguments, source, choices));
  options.type_of = [&choices](const Slot& slot) -> std::optional<DType> {
    const auto found = choices.types.find(slot.name);
    return found != choices.types.end() ? std::optional(found->second) : std::nullopt;
  };
  TRY_VOID(set_importance(arguments, source, choices, options));
  std::optional<Comparison> judged;
  std::unique_ptr<Bench> bench;
  if (arguments.given("calibrate")) {
    Interruptible scope;
    TRY(bench, open_bench(arguments, path));
    auto done = quantise(arguments, *bench, source, choices, options);
    if (!done.ok() && Interruptible::interrupted()) return say_stopped(arguments, target);
    if (!done.ok()) return done.error();
    judged = std::move(*done);
  } else if (arguments.text("method") != "round" || arguments.given("budget")) {
    return wrong_use(arguments, "--method other than round and --budget need a text: --calibrate TEXT");
  }
  TRY(const ConvertReport report, write_model(terminal, source, target, options));
  terminal.note("{}: {} parameters in {}, {}", target.string(), human_count(static_cast<uint64_t>(report.parameters)),
                counted(report.tensors, "tensor"), human_bytes(report.bytes));
  if (report.fallbacks > 0) {
    terminal.note("{} rows that do not fill groups of {}: stored in a nearby format",
                  counted(report.fallbacks, "matrix has", "matrices have"), format(options.type.type).name);
  }
  if (judged) {
    bench->journal->remove();
    TRY_VOID(print_ending(arguments, {.stages = {{"result", report.bytes, *judged}},
                                      .before = bench->teacher.get(),
                                      .before_path = {},
                                      .after = target}));
  } else if (arguments.given("imatrix")) {
    terminal.note("{}", unmeasured_note(path, target));
  }
  return kExitOk;
}

}  // namespace

Verb convert_verb() {
  return {.name = "convert",
          .summary = "write a model as a GGUF file, quantised or not",
          .group = "Look at models",
          .operands = {{.name = "IN", .help = "a Hugging Face directory or a GGUF file"},
                       {.name = "OUT", .help = "the GGUF file to write, or with --to the directory"}},
          .flags = joined(
              {{{.name = "type",
                 .alias = "-t",
                 .kind = Kind::text,
                 .value = "TYPE",
                 .help = "number format of the matrices: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, "
                         "Q4_K, Q4_K_M, Q5_K, Q5_K_M, Q6_K, IQ4_NL, IQ4_XS or MXFP4 (default: BF16 if the model is "
                         "stored so, else F16)"},
                {.name = "imatrix",
                 .kind = Kind::path,
                 .value = "FILE",
                 .help = "which inputs matter, from `millrace calibrate` or llama.cpp: scales are chosen so that "
                         "errors in these are small"},
                {.name = "tensor-type",
                 .kind = Kind::text,
                 .value = "REGEX=TYPE",
                 .many = Many::repeated,
                 .help = "another format for matrices whose name in the file has the expression in it; the first "
                         "that fits holds"}},
               writing_flags(),
               layout_flags(),
               method_flags()}),
          .examples = {{"convert ./Llama-3.2-1B llama-1b-q8.gguf --type Q8_0", "a Hugging Face directory, quantised"},
                       {"convert model-f16.gguf model-q4.gguf --type Q4_K_M", "quantise a GGUF file"},
                       {"convert model-bf16.gguf model-q4.gguf --type Q4_K_M --imatrix imatrix.gguf",
                        "quantise by importance"},
                       {"convert model-bf16.gguf model-q4.gguf --type Q4_K_M --method gptq --calibrate book.txt",
                        "codes that make good each other's errors"},
                       {"convert ./Llama-3.2-1B ./llama-1b-awq --to awq --method awq --calibrate book.txt",
                        "4 bits for engines that load AWQ"},
                       {"convert ./Llama-3.2-1B llama-1b.gguf", "without quantising"}},
          .notes =
              "The result is written under a temporary name and renamed when it is whole, so an interrupted run "
              "leaves nothing behind. The files also run in llama.cpp, as far as it knows the architecture.",
          .run = run_convert};
}

}  // namespace millrace::apps
