#include "session/fill_prompt.h"

namespace millrace {

#if MILLRACE_SESSION_TEXT

Result<std::vector<Token>> fill_prompt(const LoadedModel& model, std::string_view before, std::string_view after) {
  if (model.tokenizer() == nullptr)
    return error(Code::unsupported, "nothing can be filled in without a tokenizer: {}", model.tokenizer_error());
  const Tokenizer& tokenizer = *model.tokenizer();
  const SpecialTokens& special = tokenizer.special();
  if (special.fill_prefix < 0 || special.fill_suffix < 0 || special.fill_middle < 0) {
    return error(Code::unsupported,
                 "the model was not made to fill in the middle: its tokenizer has no tokens for it; leave out what "
                 "comes after, or serve a model that has them (Qwen Coder, StarCoder, CodeGemma, DeepSeek Coder)");
  }
  std::vector<Token> tokens;
  if (model.begin_token()) tokens.push_back(*model.begin_token());
  auto add = [&](Token mark, std::string_view text) -> Result<void> {
    tokens.push_back(mark);
    TRY(const std::vector<Token> list, tokenizer.encode(text));
    tokens.insert(tokens.end(), list.begin(), list.end());
    return {};
  };
  TRY_VOID(add(special.fill_prefix, before));
  TRY_VOID(add(special.fill_suffix, after));
  tokens.push_back(special.fill_middle);
  return tokens;
}

#else

Result<std::vector<Token>> fill_prompt(const LoadedModel& model, std::string_view, std::string_view) {
  return error(Code::unsupported, "nothing can be filled in without text: {}", model.tokenizer_error());
}

#endif

}  // namespace millrace
