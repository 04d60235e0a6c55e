#include <algorithm>

#include "apps/input.h"
#include "apps/interrupt.h"
#include "apps/model_path.h"
#include "apps/run_flags.h"
#include "apps/terminal.h"
#include "apps/verbs.h"
#include "base/json.h"
#include "eval/perplexity.h"
#include "session/answer.h"

namespace millrace::apps {
namespace {

#if MILLRACE_SESSION_TEXT
Result<std::vector<ScoredText>> cut(const Arguments& arguments, const LoadedModel& model, const std::string& text) {
  if (model.tokenizer() == nullptr)
    return error(Code::unsupported, "no perplexity without a tokenizer: {}", model.tokenizer_error());
  const Tokenizer& tokenizer = *model.tokenizer();
  const SpecialTokens& special = tokenizer.special();
  const size_t limit = arguments.given("limit") ? static_cast<size_t>(arguments.integer("limit")) : SIZE_MAX;
  std::vector<ScoredText> texts;
  if (!arguments.toggle("documents")) {
    const int32_t window =
        arguments.integer("ctx") > 0 ? static_cast<int32_t>(arguments.integer("ctx")) : std::min(512, model.context());
    if (window < 4) return error(Code::invalid, "windows of {} tokens are too short; --ctx must be at least 4", window);
    const std::optional<Token> begin = model.begin_token();
    std::vector<Token> tokens = tokenizer.encode(text);
    if (begin) tokens.insert(tokens.begin(), *begin);
    if (tokens.size() < static_cast<size_t>(window)) {
      return error(Code::invalid,
                   "the text has {} tokens, less than one window of {}; use a longer text or a smaller --ctx",
                   tokens.size(), window);
    }
    texts = cut_windows(tokens, begin, window);
    if (texts.size() > limit) texts.resize(limit);
    return texts;
  }
  for (std::string_view document : split_documents(text)) {
    if (texts.size() == limit) break;
    ScoredText one;
    if (special.begin >= 0) one.tokens.push_back(special.begin);
    for (Token token : tokenizer.encode(document)) one.tokens.push_back(token);
    if (special.end >= 0) one.tokens.push_back(special.end);
    if (arguments.integer("ctx") > 0 && static_cast<int64_t>(one.tokens.size()) - 1 > arguments.integer("ctx")) {
      return error(Code::invalid, "document {} has {} tokens, but --ctx allows {}", texts.size() + 1, one.tokens.size(),
                   arguments.integer("ctx"));
    }
    texts.push_back(std::move(one));
  }
  if (texts.empty()) return error(Code::invalid, "the text has no documents: it is blank");
  return texts;
}
#else
Result<std::vector<ScoredText>> cut(const Arguments&, const LoadedModel& model, const std::string&) {
  return error(Code::unsupported, "no perplexity without text: {}", model.tokenizer_error());
}
#endif

Result<int> run(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  TRY(std::string text, read_input(arguments.text("file")));
  TRY(auto loaded, load_model(arguments, arguments.integer("ctx")));
  TRY(std::vector<ScoredText> texts, cut(arguments, *loaded, text));
  ExecutorOptions options = scoring_options(texts, loaded->vocab());
  TRY(options.kv, kv_type(arguments));
  options.wanted = options.rows = std::min(options.rows, static_cast<int32_t>(arguments.integer("ubatch-size")));
  if (options.context > loaded->context()) {
    terminal.warn("texts of up to {} tokens, but the model was made for {}", options.context, loaded->context());
  }
  TRY(auto executor, Executor::create(loaded->model(), loaded->backend(), options));
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
  const char* unit = arguments.toggle("documents") ? "documents" : "windows";
  if (arguments.toggle("json")) {
    terminal.print("{}\n", to_text(JsonObject{{"ppl", scored->value()},
                                              {"standard_error", scored->standard_error()},
                                              {"tokens", scored->total.tokens},
                                              {"nll", scored->total.surprise},
                                              {unit, texts.size()},
                                              {"kv", format(options.kv).name},
                                              {"backend", loaded->backend().description()},
                                              {"model", valid_utf8(loaded->checkpoint().path().string())}}));
  } else {
    terminal.print("perplexity {:.4f} +- {:.4f}  ({} tokens in {} {})\n", scored->value(), scored->standard_error(),
                   scored->total.tokens, texts.size(), unit);
  }
  return kExitOk;
}

}  // namespace

Verb eval_ppl_verb() {
  return {
      .name = "eval ppl",
      .summary = "measure the perplexity of a text",
      .group = "Measure and check",
      .flags = joined(
          {{model_flag(),
            {.name = "file",
             .alias = "-f",
             .kind = Kind::path,
             .value = "FILE",
             .required = true,
             .help = "the text; - reads standard input"},
            {.name = "documents",
             .help = "split the text at blank lines and score each document alone, between begin and end token"},
            {.name = "limit",
             .kind = Kind::integer,
             .value = "N",
             .least = 1,
             .most = 1 << 30,
             .help = "score only the first N documents or windows"},
            {.name = "ctx",
             .alias = "-c --ctx-size",
             .kind = Kind::integer,
             .value = "N",
             .otherwise = "0",
             .least = 0,
             .most = 1 << 30,
             .help = "tokens of a window, or most tokens of a document; 0: windows of 512, documents of any length"},
            {.name = "json", .help = "as a JSON object with the key ppl"}},
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
      .run = run};
}

}  // namespace millrace::apps
