// Drafter: guesses how answers go on. Guesses are more rows for a step to compute; the step goes through them in turn
// and keeps those that it would have chosen itself, so a bad guess costs time and never changes an answer. Any drafter
// may guess anything: nothing it says is trusted but for speed.
//
// It works on the runner's thread, which knows an answer's tokens first, and for all answers of a step together. An
// answer's tokens at a position are always the same (contract 1), except in steps that are thrown away; a drafter that
// keeps something of them compares before it uses it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "cache/identity.h"
#include "cache/page_table.h"
#include "engine/draft/rule.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "tensor/tensor.h"

namespace millrace {

class Executor;
class Backend;

inline constexpr int kMostDrafts = 16;  // of one answer in one step

struct DraftAsk {
  RequestId request = 0;
  int choice = 0;
  Identity root;                      // whose answers may be learnt from
  std::span<const Token> tokens;      // prompt and answer so far
  int prompt = 0;                     // of them
  std::span<const Token> prediction;  // what whoever asks expects the answer to be
  int limit = 0;                      // guesses wanted at most
  int begin = 0;                      // the step computes tokens from here on
  int residence = 0;                  // pages are others whenever it changes
  std::span<const PageTable> tables;  // of the target's cache, with room for the guesses
  const Sampler* sampler = nullptr;   // guesses with the answer's own random numbers are right most often
  std::span<const Token> banned_now;  // at the first of the positions
  std::vector<Token>* out = nullptr;  // guesses are put here
  // Other ways to go on from the last token, at most so many, and all rows within the limit (draft/tree.h).
  int branches = 0;
  std::vector<std::vector<Token>>* others = nullptr;
  // Where the rule goes by it, what each guess was drawn from is put here; a drafter that has nothing to say was
  // certain.
  std::vector<std::vector<TokenProbability>>* odds = nullptr;
};

// Tokens [begin, begin + rows) of an answer were computed; rows of guesses that turned out wrong are not among them.
struct Observed {
  RequestId request = 0;
  int choice = 0;
  int begin = 0, rows = 0;
  int residence = 0;
  Tensor streams;                     // of the target, [rows, taps * width], if it is tapped
  std::span<const Token> tokens;      // at least those computed
  std::span<const PageTable> tables;  // of the target's cache
  bool waits = false;                 // whatever is kept beside of these may be made later
  int entries = -1;                   // out: of so many tokens everything that is kept beside is there; -1: nothing is
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;
  // Called after every step, if it wants to know.
  virtual bool observes() const { return false; }
  virtual void observe(std::span<Observed> /*rows*/) {}
  virtual void propose(std::span<const DraftAsk> asks) = 0;
  // Whether guesses follow from the answer's own tokens alone, however often and beside whom it runs.
  virtual bool repeats_itself() const { return false; }
  virtual void forget(RequestId /*request*/) {}  // it has ended
};

// Refuses rules under which this drafter's guesses would make an answer depend on its neighbours.
Result<void> check_rule(DraftRule rule, const Drafter& drafter);

// Makes a drafter for the executor that will check its guesses.
using DrafterMaker = std::function<Result<std::unique_ptr<Drafter>>(Executor& target, Backend& backend)>;

}  // namespace millrace
