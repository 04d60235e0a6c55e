#include <algorithm>

#include "apps/cli/input.h"
#include "apps/cli/interrupt.h"
#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/eval/input.h"
#include "apps/run/adapters.h"
#include "apps/run/flags.h"
#include "base/json.h"
#include "eval/perplexity.h"
#include "session/answer.h"

namespace millrace::apps {
namespace {

Result<int> run_eval_ppl(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  TRY(std::string text, read_input(arguments.text("file")));
  TRY(auto loaded, load_model(arguments, arguments.integer("ctx")));
  TRY(std::vector<ScoredText> texts, scored_texts(arguments, *loaded, text));
  ExecutorOptions options = scoring_options(texts, loaded->vocab());
  options.kv = kv_type(arguments, *loaded);
  options.wanted = options.rows = std::min(options.rows, step_rows(arguments, "ubatch-size", 512));
  if (options.context > loaded->context() && !loaded->model().spec().keep.bounded()) {
    terminal.warn("texts of up to {} tokens, but the model was made for {}", options.context, loaded->context());
  }
  TRY(auto executor, Executor::create(loaded->model(), loaded->backend(), options));
  TRY_VOID(use_adapters(arguments, *executor));
  uint64_t total = 0;
  for (const ScoredText& one : texts) total += one.tokens.size() - 1;
  Interruptible scope;
  std::optional<Progress> progress(std::in_place, terminal, "scoring", total, Progress::Unit::count);
  auto scored = score_texts(*executor, texts, [&](int64_t tokens) {
    progress->update(static_cast<uint64_t>(tokens));
    return !Interruptible::interrupted();
  });
  progress.reset();
  if (!scored.ok() && Interruptible::interrupted()) return interrupted_error();
  if (!scored.ok()) return scored.error();
  const std::string unit = arguments.toggle("documents") ? "document" : "window";
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_text(JsonObject{{"ppl", scored->value()},
                                              {"standard_error", scored->standard_error()},
                                              {"tokens", scored->total.tokens},
                                              {"nll", scored->total.surprise},
                                              {unit + "s", texts.size()},
                                              {"kv", options.kv.name()},
                                              {"backend", loaded->backend().description()},
                                              {"model", valid_utf8(loaded->checkpoint().path().string())}}));
  } else {
    terminal.print("perplexity {:.4f} +- {:.4f}  ({} in {})\n", scored->value(), scored->standard_error(),
                   counted(scored->total.tokens, "token"), counted(static_cast<int64_t>(texts.size()), unit));
  }
  return kExitOk;
}

}  // namespace

Verb eval_ppl_verb() {
  return {
      .name = "eval ppl",
      .summary = "measure the perplexity of a text",
      .group = "Measure and check",
      .flags = joined({scoring_flags(),
                       {{.name = "json", .help = "as a JSON object with the key ppl"},
                        ranks_flag(),
                        pipeline_flag(),
                        whole_experts_flag(),
                        transport_flag()},
                       adapter_flags(),
                       machine_flags()}),
      .examples = {{"eval ppl -f book.txt", "the shipped model on a book"},
                   {"eval ppl -m model.gguf -f stories.txt --documents --limit 60 --json",
                    "sixty documents, for a script"}},
      .notes =
          "Perplexity is exp of the mean surprise of a token given those before it; the standard error takes tokens as "
          "independent. "
          "Without --documents the text is cut into windows that do not overlap and the second half of each is scored, "
          "as "
          "llama.cpp's perplexity tool does.",
      .run = run_eval_ppl};
}

}  // namespace millrace::apps
