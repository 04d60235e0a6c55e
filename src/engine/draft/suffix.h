// Guesses from what was said before: an answer often repeats its prompt, itself, what its client predicts or what the
// same tenant was answered earlier. Every answer has an index of its own; earlier answers of a root (a tenant) share
// one of bounded size, which nobody else's answers are guessed from. Runner's thread.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "engine/draft/drafter.h"
#include "engine/draft/suffix_index.h"

namespace millrace {

struct SuffixOptions {
  int least_match = 2;           // tokens that must agree before a guess is made
  bool earlier = false;          // learn from earlier answers of the same root
  bool predicted = false;        // only for answers whose client predicts them
  int earlier_tokens = 1 << 16;  // of a root; then it starts over
  size_t roots = 16;             // that are remembered
};

class SuffixDrafter : public Drafter {
 public:
  explicit SuffixDrafter(const SuffixOptions& options) : options_(options) {}
  std::string_view name() const override { return options_.earlier ? "suffix" : "ngram"; }
  void propose(std::span<const DraftAsk> asks) override;
  bool repeats_itself() const override { return !options_.earlier; }
  void forget(RequestId request) override;
  int64_t bytes() const;

 private:
  // Earlier answers of one root.
  struct Corpus {
    SuffixIndex index;
    int era = 0;  // a number of its own, another when it starts over
  };
  // Where an answer reads along in a text.
  struct Cursor {
    int32_t at = -1;     // the token that should come next; -1: nowhere
    int32_t agreed = 0;  // tokens it has agreed with
  };
  struct Track {
    SuffixIndex index;
    SuffixIndex::Match match, earlier_match;
    Cursor cursor, earlier_cursor;
    int era = -1;
    size_t read = 0;  // of the answer's tokens, prompt included
    size_t prompt = 0;
    Identity root;
    std::vector<Token> said;  // the answer, for the corpus
  };
  void read(Track& track, const DraftAsk& ask, Corpus* corpus);
  static void follow(const SuffixIndex& index, Cursor& cursor, Token token);
  void look_up(const SuffixIndex& index, const SuffixIndex::Match& match, Cursor& cursor) const;
  static void copy(const SuffixIndex& index, const Cursor& cursor, int limit, std::vector<Token>& out);
  Corpus* corpus(const Identity& root);

  SuffixOptions options_;
  int eras_ = 0;
  std::map<std::pair<RequestId, int>, Track> tracks_;
  std::deque<std::pair<Identity, std::unique_ptr<Corpus>>> corpora_;  // the latest used first
};

}  // namespace millrace
