// A tokenizer.json or a vocab.txt, a zero byte, and a text: whatever they are, loading fails with a reason or encoding
// and decoding work.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/detokenizer.h"
#include "text/gguf_vocab.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view file = input.substr(0, end);
  const std::string_view text = end == input.npos ? input : input.substr(end + 1);
  auto tokenizer = file.starts_with('{') ? Tokenizer::from_json(file) : Tokenizer::from_words(file);
  if (!tokenizer.ok()) return 0;
  if (auto pair = tokenizer->encode_pair(text, text, 16); pair.ok() && pair->second > pair->tokens.size()) std::abort();
  for (bool specials : {false, true}) {
    const auto encoded = tokenizer->encode(text, {.parse_special = specials, .add_special = true});
    if (!encoded.ok()) continue;
    const std::vector<Token>& tokens = *encoded;
    Detokenizer stream(*tokenizer);
    std::string streamed;
    for (Token token : tokens) stream.push(token, streamed);
    streamed += stream.finish();
    if (streamed != tokenizer->decode(tokens)) std::abort();
    for (Token token : tokens) (void)tokenizer->token_bytes(token);
  }
  (void)tokenizer->gguf_vocab();
  return 0;
}
