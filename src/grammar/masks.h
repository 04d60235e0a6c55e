// Masks: the tokens a state allows, found by walking the vocabulary's trie with the automaton. Inside JSON strings,
// where most tokens are allowed, most of the work is shared: which tokens stay inside a string depends on the string
// alone, and those that leave it are grouped by what they say after its end, which is all that depends on the rest.
// One thread at a time.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/token_mask.h"
#include "grammar/machine.h"
#include "grammar/vocabulary.h"

namespace millrace::grammar {

class Masks {
 public:
  static constexpr uint64_t kMostWork = uint64_t{1} << 18;  // for one mask, or one token's step

  Masks(Machine& machine, const GrammarVocabulary& vocabulary);

  // Null if the work for it passed its limit.
  std::shared_ptr<const TokenMask> of(StateId state);
  int64_t bytes() const { return bytes_; }
  // From here on there is the work of one mask to spend.
  void begin_work();

 private:
  struct TextPart {
    TokenMask inside;   // tokens that stay in the string
    TokenTrie leaving;  // what tokens say after its end; ids are indices into groups
    std::vector<std::vector<Token>> groups;
  };
  bool spent() const { return machine_.over() || machine_.work() > limit_; }
  bool walk(const TokenTrie& trie, StateId from, TokenMask& out);
  const TextPart* text_part(const Frame& frame);
  void find_part(const TokenTrie& trie, StateId from, TextPart& part);
  // The same text as far as tokens can tell: long bounds on its length are cut to what a token can reach.
  Frame canonical(const Frame& frame) const;
  bool plain_stays(ExprId expr) const;
  bool add_leaving(const TextPart& part, StateId after, TokenMask& out);

  Machine& machine_;
  const GrammarVocabulary& vocabulary_;
  ExprId character_;
  StateId end_;
  std::unordered_map<StateId, std::shared_ptr<const TokenMask>> masks_;
  std::map<std::pair<int32_t, int32_t>, std::unique_ptr<TextPart>> parts_;
  int64_t bytes_ = 0;
  uint64_t limit_ = 0;
};

}  // namespace millrace::grammar
