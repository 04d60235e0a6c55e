#include "session/answer.h"

namespace millrace {

#if MILLRACE_SESSION_TEXT

Result<Answer> Answer::create(const LoadedModel& model, std::span<const std::string> stops, bool continues) {
  Answer answer;
  TRY(answer.stops_, StopStrings::create(stops));
  if (model.tokenizer() != nullptr) {
    answer.detokenizer_.emplace(*model.tokenizer(), DecodeOptions{.skip_special = true, .continues = continues});
  } else if (!stops.empty()) {
    return error(Code::unsupported, "stop strings need a tokenizer: {}", model.tokenizer_error());
  }
  return answer;
}

bool Answer::push(Token token, std::string& out) {
  if (!detokenizer_) return false;
  piece_.clear();
  detokenizer_->push(token, piece_);
  return stops_.push(piece_, out);
}

void Answer::finish(std::string& out) {
  if (detokenizer_ && !stops_.stopped()) stops_.push(detokenizer_->finish(), out);
  detokenizer_.reset();
  stops_.finish(out);
}

Result<std::vector<Token>> raw_prompt(const LoadedModel& model, std::string_view text) {
  if (model.tokenizer() == nullptr) {
    return error(Code::unsupported, "{}: no text without a tokenizer: {}", model.checkpoint().path().string(),
                 model.tokenizer_error());
  }
  TRY(std::vector<Token> tokens, model.tokenizer()->encode(text, {.parse_special = true}));
  if (model.begin_token() && (tokens.empty() || tokens[0] != *model.begin_token()))
    tokens.insert(tokens.begin(), *model.begin_token());
  return tokens;
}

#else

Result<Answer> Answer::create(const LoadedModel& model, std::span<const std::string> stops, bool) {
  if (!stops.empty()) return error(Code::unsupported, "stop strings need text: {}", model.tokenizer_error());
  return Answer();
}

bool Answer::push(Token, std::string&) { return false; }
void Answer::finish(std::string&) {}

Result<std::vector<Token>> raw_prompt(const LoadedModel& model, std::string_view) {
  return error(Code::unsupported, "{}", model.tokenizer_error());
}

#endif

}  // namespace millrace
