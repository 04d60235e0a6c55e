#include "apps/eval/input.h"

#include <algorithm>

#include "apps/cli/model_path.h"

namespace millrace::apps {

#if MILLRACE_SESSION_TEXT
Result<std::vector<ScoredText>> scored_texts(const Arguments& arguments, const LoadedModel& model,
                                             const std::string& text) {
  if (model.tokenizer() == nullptr)
    return error(Code::unsupported, "no text can be scored without a tokenizer: {}", model.tokenizer_error());
  const Tokenizer& tokenizer = *model.tokenizer();
  const SpecialTokens& special = tokenizer.special();
  const size_t limit = arguments.given("limit") ? static_cast<size_t>(arguments.integer("limit")) : SIZE_MAX;
  std::vector<ScoredText> texts;
  if (!arguments.toggle("documents")) {
    const int32_t window =
        arguments.integer("ctx") > 0 ? static_cast<int32_t>(arguments.integer("ctx")) : std::min(512, model.context());
    if (window < 4) return error(Code::invalid, "windows of {} tokens are too short; --ctx must be at least 4", window);
    const std::optional<Token> begin = model.begin_token();
    TRY(std::vector<Token> tokens, tokenizer.encode(text));
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
    TRY(const std::vector<Token> tokens, tokenizer.encode(document));
    if (special.begin >= 0) one.tokens.push_back(special.begin);
    one.tokens.insert(one.tokens.end(), tokens.begin(), tokens.end());
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
Result<std::vector<ScoredText>> scored_texts(const Arguments&, const LoadedModel& model, const std::string&) {
  return error(Code::unsupported, "no text can be scored: {}", model.tokenizer_error());
}
#endif

std::vector<Flag> scoring_flags() {
  return {model_flag(),
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
           .help = "tokens of a window, or most tokens of a document; 0: windows of 512, documents of any length"}};
}

}  // namespace millrace::apps
