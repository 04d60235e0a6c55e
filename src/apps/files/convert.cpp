#include "model/convert.h"

#include <system_error>

#include "apps/cli/interrupt.h"
#include "apps/cli/summary.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "model/source.h"
#include "session/sampling_defaults.h"
#include "tensor/checkpoint.h"
#if MILLRACE_HAS_TEXT
#include "text/gguf_vocab.h"
#include "text/tokenizer.h"
#endif

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

// Without --type, numbers stay as they are as far as GGUF has them; what is quantised already needs a decision.
Result<FileType> chosen_type(const Arguments& arguments, const Checkpoint& checkpoint) {
  if (arguments.given("type")) return FileType::parse(arguments.text("type"));
  TRY(Summary summary, summarise(checkpoint));
  DType most = summary.types.empty() ? DType::f16 : summary.types.front().type;
  if (most == DType::bf16) return FileType::parse("BF16");
  if (most == DType::f16 || most == DType::f32) return FileType::parse("F16");
  return error(Code::invalid, "the weights are already {}: say with --type what they should become", format(most).name);
}

Result<void> check_target(const fs::path& source, const fs::path& target) {
  std::error_code ignored;
  if (fs::is_directory(target, ignored)) {
    return error(Code::invalid, "{}: is a directory; name the file to write, such as {}", target.string(),
                 (target / "model.gguf").string());
  }
  if (fs::equivalent(source, target, ignored)) {
    return error(Code::invalid, "{}: is the file to convert; choose another name for the result", target.string());
  }
  fs::path folder = target.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored)) {
    return error(Code::not_found, "{}: no such directory; create it first", folder.string());
  }
  return {};
}

Result<void> check_absent(const fs::path& target) {
  std::error_code ignored;
  if (!fs::exists(target, ignored)) return {};
  return error(Code::invalid, "{}: is there already ({}); --force replaces it", target.string(),
               human_bytes(fs::file_size(target, ignored)));
}

// How the makers of a model would have tokens chosen, as its directory says it.
void set_sampling(const Terminal& terminal, const Checkpoint& checkpoint, ConvertOptions& options) {
  if (checkpoint.kind() == Checkpoint::Kind::gguf) return;
  for (const std::string& ignored : sampling_defaults(checkpoint).ignored) terminal.warn("{}", ignored);
  options.sampling = [&checkpoint](GgufWriter& writer) { return put_sampling(writer, checkpoint); };
}

// Tokenizer and chat template of a Hugging Face directory; a GGUF file's keys are carried over as they are.
Result<void> set_text(const Terminal& terminal, const Checkpoint& checkpoint, ConvertOptions& options) {
  if (checkpoint.kind() == Checkpoint::Kind::gguf) return {};
#if MILLRACE_HAS_TEXT
  if (!checkpoint.tokenizer_json()) {
    terminal.warn("there is no tokenizer.json, so the result will take and give token ids only");
    return {};
  }
  TRY(Tokenizer tokenizer, Tokenizer::open(checkpoint));
  TRY(GgufVocab vocab, tokenizer.gguf_vocab());
  options.tokenizer = [vocab = std::move(vocab), &checkpoint](GgufWriter& writer) -> Result<void> {
    TRY_VOID(put_vocab(writer, vocab));
    if (!checkpoint.chat_template()) return {};
    return writer.put("tokenizer.chat_template", std::string_view(*checkpoint.chat_template()));
  };
#else
  static_cast<void>(options);
  terminal.warn("this program was built without text, so the result will have no tokenizer");
#endif
  return {};
}

Result<int> run(const Arguments& arguments) {
  fs::path path = arguments.operand("IN"), target = arguments.operand("OUT");
  TRY(Checkpoint checkpoint, Checkpoint::open(path));
  TRY_VOID(check_target(path, target));
  ConvertOptions options;
  TRY(options.type, chosen_type(arguments, checkpoint));
  if (!arguments.toggle("force")) TRY_VOID(check_absent(target));
  options.name = arguments.text("name");
  options.threads = static_cast<int>(arguments.integer("threads"));
  const Terminal& terminal = arguments.terminal();
  TRY_VOID(set_text(terminal, checkpoint, options));
  set_sampling(terminal, checkpoint, options);
  TRY(ModelSource source, ModelSource::open(checkpoint));

  Interruptible interruptible;
  std::optional<Progress> progress;
  options.progress = [&](uint64_t done, uint64_t total) {
    if (!progress) progress.emplace(terminal, "converting", total, Progress::Unit::bytes);
    progress->update(done);
    return !Interruptible::interrupted();
  };
  auto report = convert(source, target, options);
  progress.reset();
  if (!report.ok()) return std::move(report).error();
  terminal.note("{}: {} parameters in {} tensors, {}", target.string(),
                human_count(static_cast<uint64_t>(report->parameters)), report->tensors, human_bytes(report->bytes));
  if (report->fallbacks > 0) {
    terminal.note("{} matrices have rows that do not fill groups of {} and got a nearby format", report->fallbacks,
                  format(options.type.type).name);
  }
  return kExitOk;
}

}  // namespace

Verb convert_verb() {
  return {.name = "convert",
          .summary = "write a model as a GGUF file, quantised or not",
          .group = "Look at models",
          .operands = {{.name = "IN", .help = "a Hugging Face directory or a GGUF file"},
                       {.name = "OUT", .help = "the GGUF file to write"}},
          .flags = {{.name = "type",
                     .alias = "-t",
                     .kind = Kind::text,
                     .value = "TYPE",
                     .help = "number format of the matrices: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, "
                             "Q4_K, Q4_K_M, Q5_K, Q5_K_M or Q6_K (default: BF16 if the model is stored so, else F16)"},
                    {.name = "force", .help = "replace OUT if it is there already"},
                    {.name = "name", .kind = Kind::text, .value = "NAME", .help = "the model's name in the file"},
                    {.name = "threads",
                     .kind = Kind::integer,
                     .value = "N",
                     .otherwise = "0",
                     .least = 0,
                     .most = 4096,
                     .help = "worker threads; 0 means one per processor"}},
          .examples = {{"convert ./Llama-3.2-1B llama-1b-q8.gguf --type Q8_0", "a Hugging Face directory, quantised"},
                       {"convert model-f16.gguf model-q4.gguf --type Q4_K_M", "quantise a GGUF file"},
                       {"convert ./Llama-3.2-1B llama-1b.gguf", "without quantising"}},
          .notes =
              "The result is written under a temporary name and renamed when it is whole, so an interrupted run "
              "leaves nothing behind. The files also run in llama.cpp, as far as it knows the architecture.",
          .run = run};
}

}  // namespace millrace::apps
