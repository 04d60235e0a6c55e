// A small vocabulary and helpers that the tests of grammars share.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/vocabulary.h"

namespace millrace::testing_grammar {

// Every byte, some longer tokens, and an end (the last).
inline std::shared_ptr<const GrammarVocabulary> vocabulary(const std::vector<std::string>& more = {}) {
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.push_back(std::string(1, static_cast<char>(b)));
  for (const std::string& text : more) bytes.push_back(text);
  bytes.push_back("");
  const Token end = static_cast<Token>(bytes.size()) - 1;
  return std::make_shared<GrammarVocabulary>(std::move(bytes), std::vector<Token>{end});
}

inline Result<std::shared_ptr<Grammar>> compile(GrammarKind kind, std::string_view text,
                                                const std::vector<std::string>& more = {}) {
  return Grammar::compile({.kind = kind, .text = std::string(text)}, vocabulary(more));
}

inline bool accepts(Grammar& grammar, std::string_view text) {
  const Grammar::State state = grammar.next_bytes(grammar.start(), text);
  return state != Grammar::kRefused && grammar.accepts(state);
}

inline bool begins(Grammar& grammar, std::string_view text) {
  return grammar.next_bytes(grammar.start(), text) != Grammar::kRefused;
}

}  // namespace millrace::testing_grammar
