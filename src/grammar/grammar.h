// Grammar: what an answer must be, compiled: a JSON Schema, a regular expression, a choice of texts, or rules in GBNF
// or Lark; and the masks that keep an answer to it. A token is allowed exactly if some continuation of the answer after
// it is valid; departures are in docs/structured.md.
//
// Built lazily: states and masks are made when an answer first comes to them, and kept for all answers that use the
// same Grammar. Any thread; a lock inside. What a mask is depends on the grammar and the tokens so far only, never on
// what else was asked or how long it took. Work and memory are counted: past a limit, a call gives an error.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/token.h"
#include "base/token_mask.h"

namespace millrace {

class GrammarVocabulary;

// Bytes that stand for a control token where it counts: no text has them.
std::string control_bytes(Token token);

enum class GrammarKind : uint8_t { json_schema, json_object, regex, choice, gbnf, lark, calls };

struct GrammarSource {
  GrammarKind kind = GrammarKind::json_schema;
  // The schema as JSON, the expression or the rules; of a choice a JSON array of texts; of calls their format and the
  // tools, as call_source.h describes it.
  std::string text;
  bool compact = false;        // JSON without white space between its tokens
  bool in_order = false;       // properties in the order the schema declares them, only
  bool assert_formats = true;  // `format` is an assertion where it is known
};

class Grammar {
 public:
  using State = int32_t;
  static constexpr State kRefused = 0;

  static Result<std::shared_ptr<Grammar>> compile(const GrammarSource& source,
                                                  std::shared_ptr<const GrammarVocabulary> vocabulary);
  ~Grammar();

  State start() const;
  // The state after a token; kRefused if it is not allowed. An end token of an accepting state leaves it as it is.
  State next(State state, Token token);
  State next_bytes(State state, std::string_view bytes);
  bool accepts(State state);   // the answer may end here
  bool finished(State state);  // and nothing else
  // Kept with the grammar; ends of the model are in it exactly if the state accepts.
  Result<std::shared_ptr<const TokenMask>> allowed(State state);

  int64_t bytes();  // of memory, now
  bool over();      // a limit of work was passed: nothing more is allowed, and it had better be compiled anew
  const GrammarVocabulary& vocabulary() const { return *vocabulary_; }
  const std::vector<std::string>& notes() const { return notes_; }  // unknown formats, taken as annotations

  struct Parts;

 private:
  Grammar(std::unique_ptr<Parts> parts, std::shared_ptr<const GrammarVocabulary> vocabulary);
  std::mutex lock_;
  std::unique_ptr<Parts> parts_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::vector<std::string> notes_;
};

}  // namespace millrace
