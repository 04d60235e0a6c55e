#include "shrink/calibrate.h"

#include <cmath>
#include <system_error>

#include "apps/cli/flags.h"
#include "apps/cli/input.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/output.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/eval/input.h"
#include "apps/run/flags.h"
#include "cache/identity.h"

namespace millrace::apps {
namespace {

namespace fs = std::filesystem;

// What a run is made of: the tokens, how they are cut, and the model.
std::string made_of(const LoadedModel& model, std::span<const ScoredText> texts, bool head) {
  Digest digest;
  digest.add_sized(fs::absolute(model.checkpoint().path()).string());
  digest.add_sized(fmt::format("{} {} {}", model.checkpoint().file_bytes(), model.backend().description(), head));
  for (const ScoredText& text : texts) {
    digest.add_sized(
        std::string_view(reinterpret_cast<const char*>(text.tokens.data()), text.tokens.size() * sizeof(Token)));
  }
  std::string out;
  for (uint8_t byte : digest.finish().bytes) out += fmt::format("{:02x}", byte);
  return out;
}

// What an earlier run of the same left, if it was interrupted.
Result<Importance> begun_before(const Terminal& terminal, const fs::path& part, const std::string& of) {
  std::error_code ignored;
  if (!fs::exists(part, ignored)) return Importance{};
  TRY(const Checkpoint checkpoint, Checkpoint::open(part));
  TRY(Importance begun, read_importance(checkpoint));
  if (begun.of != of || begun.chunks < 0) {
    return error(Code::invalid, "{}: was begun with another text, model or machine; remove it to begin anew",
                 part.string());
  }
  terminal.note("going on after {} of an earlier run", counted(begun.chunks, "text"));
  return begun;
}

Result<void> check_target(const Arguments& arguments, const fs::path& target) {
  std::error_code ignored;
  if (fs::is_directory(target, ignored))
    return error(Code::invalid, "{}: is a directory; name the file to write", target.string());
  return check_outputs(arguments, {"output"});
}

void say_done(const Terminal& terminal, const fs::path& target, const Calibration& done, size_t texts) {
  if (done.unread > 0)
    terminal.warn("{} reached by no token of the text: every column counts alike there",
                  counted(done.unread, "expert was", "experts were"));
  std::error_code ignored;
  const TextScore& score = done.score;
  terminal.print("{}: {}, {}, {}; perplexity {:.4f} of {}\n", target.string(),
                 human_bytes(fs::file_size(target, ignored)),
                 counted(static_cast<int64_t>(done.importance.tensors.size()), "tensor"),
                 counted(static_cast<int64_t>(texts), "text"),
                 score.tokens > 0 ? std::exp(score.surprise / static_cast<double>(score.tokens)) : 0,
                 counted(score.tokens, "token"));
}

Result<int> run_calibrate(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  const fs::path target = arguments.text("output");
  fs::path part = target;
  part += ".part";
  TRY_VOID(check_target(arguments, target));
  TRY(const std::string text, read_input(arguments.text("file")));
  TRY(auto model, load_model(arguments, arguments.integer("ctx")));
  TRY(const std::vector<ScoredText> texts, scored_texts(arguments, *model, text));
  TRY(const ModelSource source, ModelSource::open(model->checkpoint()));
  const bool head = arguments.toggle("head");
  const std::string of = made_of(*model, texts, head);
  TRY(Importance begun, begun_before(terminal, part, of));
  begun.of = of;
  begun.datasets = {fs::path(arguments.text("file")).filename().string()};
  begun.chunk_tokens = 0;
  for (const ScoredText& each : texts)
    begun.chunk_tokens = std::max(begun.chunk_tokens, static_cast<int64_t>(each.tokens.size()));

  Interruptible scope;
  std::optional<Progress> progress(std::in_place, terminal, "calibrating", static_cast<uint64_t>(tokens_of(texts)),
                                   Progress::Unit::count);
  const auto before = static_cast<uint64_t>(
      tokens_of(std::span(texts).first(std::min(texts.size(), static_cast<size_t>(begun.chunks)))));
  Result<void> saved;
  auto between = [&](const Importance& so_far) {
    saved = write_importance(so_far, part, true);
    return saved.ok() && !Interruptible::interrupted();
  };
  const CalibrateOptions options = {.head = head,
                                    .threads = static_cast<int>(arguments.integer("threads")),
                                    .progress =
                                        [&](int64_t tokens) {
                                          progress->update(before + static_cast<uint64_t>(tokens));
                                          return !Interruptible::interrupted();
                                        },
                                    .between = between};
  auto done = calibrate(model->model(), source, model->backend(), texts, std::move(begun), options);
  progress.reset();
  TRY_VOID(std::move(saved));
  if (!done.ok() && Interruptible::interrupted()) {
    std::error_code ignored;
    if (fs::exists(part, ignored)) terminal.note("what was done is in {}; the same command goes on", part.string());
    return interrupted_error();
  }
  if (!done.ok()) return done.error();
  done->importance.of.clear();
  TRY_VOID(write_importance(done->importance, target, false));
  std::error_code ignored;
  fs::remove(part, ignored);
  say_done(terminal, target, *done, texts.size());
  return kExitOk;
}

}  // namespace

Verb calibrate_verb() {
  return {.name = "calibrate",
          .summary = "measure on a text which inputs of every matrix matter, for convert --imatrix",
          .group = "Make models smaller",
          .flags = joined({scoring_flags(),
                           {{.name = "output",
                             .alias = "-o",
                             .kind = Kind::path,
                             .value = "FILE",
                             .required = true,
                             .help = "the imatrix file to write"},
                            {.name = "head", .help = "of the head as well; quantising it by importance seldom helps"},
                            force_flag()},
                           machine_flags()}),
          .examples = {{"calibrate -m model-bf16.gguf -f book.txt -o imatrix.gguf", "over windows of 512 tokens"},
                       {"calibrate -m ./model -f stories.txt --documents -o imatrix.gguf", "each document alone"}},
          .notes =
              "The file has llama.cpp's layout and either program reads the other's. A few thousand tokens are enough; "
              "they should be like what the model will read, and not the text that it is scored with. An interrupted "
              "run leaves FILE.part, and the same command goes on from there with the same result.",
          .run = run_calibrate};
}

}  // namespace millrace::apps
