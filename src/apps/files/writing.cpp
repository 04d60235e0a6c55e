#include "apps/files/writing.h"

#include <optional>
#include <system_error>

#include "apps/cli/interrupt.h"
#include "apps/cli/output.h"
#include "base/team.h"
#include "session/sampling_defaults.h"
#if MILLRACE_HAS_TEXT
#include "text/gguf_vocab.h"
#include "text/tokenizer.h"
#endif

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

Result<void> check_place(const fs::path& source, const fs::path& target) {
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

}  // namespace

std::vector<Flag> writing_flags() {
  return {force_flag("replace OUT if it is there already"),
          {.name = "name", .kind = Kind::text, .value = "NAME", .help = "the model's name in the file"},
          {.name = "threads",
           .kind = Kind::integer,
           .value = "N",
           .otherwise = "0",
           .least = 0,
           .most = 4096,
           .help = "worker threads; 0 means one per core"}};
}

Writing writing_of(const Arguments& arguments) {
  const auto threads = static_cast<int>(arguments.integer("threads"));
  return {.replace = arguments.toggle("force"),
          .name = arguments.text("name"),
          .threads = threads,
          .workers = threads > 0 ? threads : Team::processors()};
}

Result<void> check_target(const fs::path& source, const fs::path& target, bool replace) {
  TRY_VOID(check_place(source, target));
  return replace ? Result<void>() : check_absent(target);
}

Result<void> set_text_keys(const Terminal& terminal, const Checkpoint& checkpoint, ConvertOptions& options) {
  TRY_VOID(set_text(terminal, checkpoint, options));
  set_sampling(terminal, checkpoint, options);
  return {};
}

Result<ConvertReport> write_model(const Terminal& terminal, const ModelSource& source, const fs::path& target,
                                  ConvertOptions options) {
  Interruptible interruptible;
  std::optional<Progress> progress;
  options.progress = [&](uint64_t done, uint64_t total) {
    if (!progress) progress.emplace(terminal, "converting", total, Progress::Unit::bytes);
    progress->update(done);
    return !Interruptible::interrupted();
  };
  auto report = convert(source, target, options);
  progress.reset();
  return report;
}

}  // namespace millrace::apps
