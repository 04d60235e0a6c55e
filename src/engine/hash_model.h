// HashModel: a model for tests whose answer depends on everything its cache holds. What it keeps of a token is a hash
// of that token and of all it can read of those before it, in every group of the cache, and the next token is a hash of
// that. So a page that is stale, mixed up, freed too early or somebody else's changes the answer at once. Pages that
// nobody holds are poisoned. It runs StepPlans as an executor does, moves first and in order. Its choices also depend
// on a state that moves with every token chosen, as mirostat's bar and a grammar do.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "cache/kv_cache.h"
#include "engine/draft/branches.h"
#include "engine/draft/entries.h"
#include "engine/request.h"
#include "engine/step_plan.h"

namespace millrace {

// Random numbers in order, from a seed. Never used for anything a user sees.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t next();
  int roll(int from, int to) {
    return from + static_cast<int>(next() % static_cast<uint64_t>(to - from + 1));
  }  // both ends
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability; }

 private:
  uint64_t state_;
};

// What a request gives when nothing else runs: all tokens of an answer, and what the model keeps of each.
struct HashAnswer {
  std::vector<Token> tokens;  // prompt and answer
  std::vector<uint64_t> kept;
};

struct HashFaults {
  double failed_move = 0;  // chance that a move to or from the second store fails
  double broken_row = 0;   // chance that no token can be chosen
};

class HashModel {
 public:
  // Behind the cache's pages lie spare ones for branches (draft/branches.h). Where the cache looks back, the layout's
  // last layer is beside the model's: a head's.
  HashModel(const CacheLayout& layout, int pages, int second_pages, int vocab, int spare_pages = 0, int look_back = 0);

  struct Guesses {
    std::vector<Token> first;                // the likeliest way to go on
    std::vector<std::vector<Token>> others;  // and others, as draft/tree.h counts their rows
  };
  // Puts guesses of the tokens from position `at` on into `out`; at most as many rows as the work has room for.
  using Guess = std::function<void(const Work& work, int at, Guesses& out)>;
  Sampled run(const StepPlan& plan, const HashFaults& faults, Dice& dice, const Guess& guess = {});
  void poison_free(const KvCache& cache);
  HashAnswer alone(const Request& request, int choice) const;

  // What the cache must hold of the first `tokens` tokens of a sequence, compared with what it holds.
  Result<void> compare(const SequencePages& pages, const HashAnswer& truth, int tokens) const;

 private:
  // What a head sees of a computed token, and the token.
  struct Stream {
    uint64_t kept = 0;
    Token token = 0;
  };
  struct Beside {
    EntryLine line;
    std::map<int, Stream> streams;  // by position
  };
  uint64_t& cell(int group, PageId page, int offset) { return memory_[place(group, page, offset)]; }
  size_t place(int group, PageId page, int offset) const;
  void move(const PageMove& move);
  uint64_t compute(const Identity& root, std::span<const PageTable> tables, int position, Token token);
  SampledRow run_work(const Work& work, const Guesses& guesses, std::vector<Stream>& right);
  // As a head does that keeps a layer beside the model's (engine/draft/head.h): some entries before guesses, the others
  // when their streams have come, or a little later.
  void make_entries_before(const Work& work, Dice& dice);
  int make_entries_after(const Work& work, std::span<const Stream> right, Dice& dice);
  void make_entries(const Work& work, int upto);
  uint64_t expected(const HashAnswer& truth, int position, int group) const;
  // What is kept of each row of a path that begins with the last known token at `begin`.
  std::vector<uint64_t> run_path(const Work& work, std::span<const PageTable> tables, int begin,
                                 std::span<const Token> tokens);
  void run_branches(const Work& work, Token last, const Guesses& guesses, std::vector<std::vector<uint64_t>>& kept);
  Token choose(uint64_t kept, uint64_t state, const Request& request, int choice, int position) const;
  Token choose_next(const Sequence& sequence, uint64_t kept, int position, int guesses);

  CacheLayout layout_;
  int vocab_;
  int look_back_;
  size_t page_cells_ = 0;
  std::vector<uint64_t> memory_, second_;
  Branches branches_;
  int beside_ = -1;                    // the group of the layer beside the model's; -1: there is none
  std::map<int64_t, Beside> besides_;  // of each sequence
  std::map<int64_t, Token> chosen_;    // last token chosen for each sequence, which the host may not know yet
  std::map<int64_t, std::vector<uint64_t>> states_;  // of each sequence, before each token of its answer
};

}  // namespace millrace
