// Masks: the tokens a state allows, found by walking the vocabulary's trie with the automaton. Inside JSON strings,
// where most tokens are allowed, most of the work is shared: which tokens stay inside a string depends on the string
// alone (and is in the vocabulary's TextTable where nothing but its length is bounded), and those that leave it are
// grouped by what they say after its end, which is all that depends on the rest. One thread at a time.
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
  // What states that differ in captured texts only have in common.
  struct Shared {
    std::shared_ptr<TokenMask> mask;
    std::vector<Token> unsure;  // tokens for which the texts matter: tried one by one
  };
  // A text as tokens see it: what stays inside, and what leaves it.
  struct TextPart {
    TokenMask inside;
    const LeavingTokens* leaving = nullptr;
    std::unique_ptr<LeavingTokens> own;  // where it is no text of the vocabulary's table
    int least = 0, most = -1;            // characters that may be said before the end
    std::vector<bool> refused;           // what may not be said before the end; empty: nothing
    bool takes(const LeavingTokens::Entry& entry) const {
      if (entry.characters < least || (most >= 0 && entry.characters > most)) return false;
      return refused.empty() || !refused[static_cast<size_t>(entry.before)];
    }
  };
  bool spent() const { return machine_.over() || machine_.work() > limit_; }
  // A token whose answer depends on texts that were forgotten on the way goes to `unsure`.
  void walk(const TokenTrie& trie, StateId from, TokenMask& out, std::vector<int32_t>& unsure);
  bool takes_all(const TokenTrie& trie, size_t node, StateId state);
  const TextPart* text_part(const Frame& frame);
  // One whose length alone is bounded; one that goes on whatever characters come; any other.
  bool count_part(const Frame& frame, TextPart& part) const;
  bool open_part(const Frame& frame, TextPart& part);
  void add_short(const Frame& frame, int sure, TextPart& part);
  void walk_part(StateId from, TextPart& part);
  // The same text as far as tokens can tell: long bounds on its length are cut to what a token can reach.
  Frame canonical(const Frame& frame);
  bool window(ExprId expr, int& least, int& most) const;
  void add_leaving(const TextPart& part, StateId after, Shared& out);
  std::shared_ptr<const Shared> shared(StateId state);

  Machine& machine_;
  const GrammarVocabulary& vocabulary_;
  ExprId character_, characters_, text_end_;
  StateId end_;
  std::unordered_map<StateId, std::shared_ptr<const TokenMask>> masks_;
  std::unordered_map<StateId, std::shared_ptr<const Shared>> shared_;
  std::map<std::pair<int32_t, int32_t>, std::unique_ptr<TextPart>> parts_;
  int64_t bytes_ = 0;
  uint64_t limit_ = 0;
};

}  // namespace millrace::grammar
