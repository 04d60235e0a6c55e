// Guesses from what was said before: an answer often repeats its prompt, itself, what its client predicts or what the
// same tenant was answered earlier. Every answer has an index of its own; earlier answers of a root (a tenant) share
// one, which nobody else's answers are guessed from. Indexes lie in memory that is planned and charged at create(), one
// place for each answer of a step: of texts longer than that the latest part is looked at, and an answer that lost its
// place reads its text again. What is guessed follows from the answer's tokens alone. Runner's thread.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "engine/draft/drafter.h"
#include "engine/draft/suffix_index.h"

namespace millrace {

struct SuffixOptions {
  int least_match = 2;     // tokens that must agree before a guess is made
  bool earlier = false;    // learn from earlier answers of the same root
  bool predicted = false;  // only for answers whose client predicts them
  size_t roots = 8;        // that are remembered
};

class SuffixDrafter : public Drafter {
 public:
  // Tokens that an index has room for.
  struct Rooms {
    int32_t answer = 0, earlier = 0;  // of an answer; of a root, then it starts over
    int32_t answers = 0, roots = 0;   // how many there are
    int64_t bytes() const { return (int64_t{answer} * answers + int64_t{earlier} * roots) * SuffixIndex::kTokenBytes; }
  };
  // For so many answers in a step, of sequences no longer than `context`.
  static Rooms plan(const SuffixOptions& options, int32_t sequences, int32_t context);
  // The backend outlives it.
  static Result<std::unique_ptr<Drafter>> create(const SuffixOptions& options, Executor& target, Backend& backend);
  // In memory of `rooms.bytes()` that outlives it.
  SuffixDrafter(const SuffixOptions& options, const Rooms& rooms, std::byte* memory);
  std::string_view name() const override { return options_.earlier ? "suffix" : "ngram"; }
  void propose(std::span<const DraftAsk> asks) override;
  bool repeats_itself() const override { return !options_.earlier; }
  void forget(RequestId request) override;

 private:
  // Earlier answers of one root.
  struct Corpus {
    Identity root;
    SuffixIndex index;
    int era = 0;  // a number of its own, another when it starts over
  };
  // Where an answer reads along in a text.
  struct Cursor {
    int32_t at = -1;     // the token that should come next; -1: nowhere
    int32_t agreed = 0;  // tokens it has agreed with
  };
  struct Track {
    std::byte* place = nullptr;  // where its index lies; null: it has to read again
    int64_t used = 0;            // when
    SuffixIndex index;
    SuffixIndex::Match match, earlier_match;
    Cursor cursor, earlier_cursor;
    int era = -1;
    size_t read = 0;  // of the answer's tokens, prompt included
    size_t prompt = 0;
    Identity root;
    std::vector<Token> said;  // the answer, for the corpus
  };
  Track& track_of(const DraftAsk& ask);
  std::byte* place();
  void read(Track& track, const DraftAsk& ask, Corpus* corpus);
  void take(Track& track, Token token);
  static void follow(const SuffixIndex& index, Cursor& cursor, Token token);
  void look_up(const SuffixIndex& index, const SuffixIndex::Match& match, Cursor& cursor) const;
  static void copy(const SuffixIndex& index, const Cursor& cursor, int limit, std::vector<Token>& out);
  Corpus* corpus(const Identity& root);

  SuffixOptions options_;
  Rooms rooms_;
  int eras_ = 0;
  int64_t calls_ = 0;
  std::map<std::pair<RequestId, int>, Track> tracks_;
  std::vector<std::byte*> free_;  // places of answers
  std::deque<Corpus> corpora_;    // the latest used first
  std::vector<Token> latest_;
};

}  // namespace millrace
