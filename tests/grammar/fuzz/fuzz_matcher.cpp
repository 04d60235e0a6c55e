// A grammar of any kind, a zero byte, and bytes that choose among what is allowed: masks have exactly the tokens that
// steps take, and no state is a dead end.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "grammar/small.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  if (size > 2048) return 0;
  static const auto vocabulary = testing_grammar::vocabulary(
      {"{\"", "\": ", "\", \"", "ab", "\"}", "\\u", "é", "abcdefgh", "abcdefghi", "abcdefghij", "ABC12", "a b c"});
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  if (end == input.npos) return 0;
  const GrammarKind kind = input.starts_with('{')       ? GrammarKind::json_schema
                           : input.starts_with("root")  ? GrammarKind::gbnf
                           : input.starts_with("start") ? GrammarKind::lark
                                                        : GrammarKind::regex;
  auto grammar = Grammar::compile({.kind = kind, .text = std::string(input.substr(0, end))}, vocabulary);
  if (!grammar.ok()) return 0;
  Grammar::State state = (*grammar)->start();
  constexpr size_t kMostTokens = 150;  // stacks have a limit, and what is near it may have no way back
  for (char c : input.substr(end + 1, kMostTokens)) {
    auto mask = (*grammar)->allowed(state);
    if (!mask.ok()) return 0;
    std::vector<Token> allowed;
    for (Token token = 0; token < vocabulary->size(); ++token) {
      if (vocabulary->is_end(token)) continue;
      const bool taken = (*grammar)->next(state, token) != Grammar::kRefused;
      if ((*grammar)->over()) return 0;
      if (taken != (*mask)->has(token)) std::abort();
      if (taken) allowed.push_back(token);
    }
    if (allowed.empty()) {
      if (!(*grammar)->accepts(state)) std::abort();
      return 0;
    }
    state = (*grammar)->next(state, allowed[static_cast<uint8_t>(c) % allowed.size()]);
    if (state == Grammar::kRefused) std::abort();
  }
  return 0;
}
