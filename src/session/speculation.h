// Drafters: what --speculate names, ready to be made into a drafter: kinds that need no weights (ngram, suffix),
// draft models with the target's vocabulary and heads on its streams (Medusa, MTP, EAGLE-3), several of them separated
// by commas. Their weights lie on the target's backend and are charged to it. Made on one thread, then immutable.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/parts.h"
#include "model/heads/head.h"
#include "session/loaded_model.h"

namespace millrace {

struct SpeculateOptions {
  std::vector<std::string> names;  // kinds and files; 'none' or nothing: no guesses
  int most = 4;                    // guesses of one answer in one step
  int branches = 0;                // other ways to go on that are tried beside the first (engine/draft/tree.h)
  DraftRule rule = DraftRule::exact;
};
// The same as vLLM writes it: {"method": "ngram", "num_speculative_tokens": 4} or {"model": "FILE", ...}.
Result<SpeculateOptions> read_speculative_config(std::string_view json);

class Drafters {
 public:
  // The target outlives what comes out. `context` is the longest sequence that will be run.
  static Result<std::unique_ptr<Drafters>> open(const SpeculateOptions& options, LoadedModel& target, int64_t context);
  bool any() const { return !kinds_.empty(); }
  int most() const { return options_.most; }
  DraftRule rule() const { return options_.rule; }
  // This object outlives the drafter. Without guesses there is none.
  Result<std::unique_ptr<Drafter>> drafter(Executor& target, Backend& backend) const;
  DraftOptions for_engine() const;
  // What heads and draft models keep of every token in the target's pages.
  BesideLayers beside() const;
  // What pages are kept under, given what the target's are: other heads or draft models fill them otherwise.
  Identity identity(const Identity& target) const;
  // What answers follow from where guesses change them: the rule, how many guesses there are, and whatever guesses.
  // None by the exact rule, which changes none.
  std::optional<Identity> changes() const;

 private:
  struct Kind {
    std::string name;
    std::unique_ptr<Checkpoint> checkpoint;  // of a draft model or a head
    std::unique_ptr<Model> model;
    std::unique_ptr<Head> head;
    BesideLayers beside() const;
  };
  static Result<Kind> open_one(const std::string& name, bool digest, LoadedModel& target, int64_t context);
  SpeculateOptions options_;
  std::vector<Kind> kinds_;
};

}  // namespace millrace
