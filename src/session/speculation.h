// Speculation: what --speculate names, ready to be made into a drafter: kinds that need no weights (ngram, suffix) and
// draft models with the target's vocabulary, several of them separated by commas. Their weights lie on the target's
// backend and are charged to it. Made on one thread, then immutable.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/draft/drafter.h"
#include "session/loaded_model.h"

namespace millrace {

class Speculation {
 public:
  // `names` as the command line has them; 'none' or nothing: no guesses. The target outlives what comes out.
  static Result<std::unique_ptr<Speculation>> open(const std::vector<std::string>& names, LoadedModel& target,
                                                   int64_t context);
  bool any() const { return !kinds_.empty(); }
  // This object outlives the drafter. Without guesses there is no maker, and none is made.
  DrafterMaker maker() const;
  Result<std::unique_ptr<Drafter>> drafter(const Executor& target, Backend& backend) const;

 private:
  struct Kind {
    std::string name;
    std::unique_ptr<Checkpoint> checkpoint;  // of a draft model
    std::unique_ptr<Model> model;
  };
  static Result<Kind> open_one(const std::string& name, LoadedModel& target, int64_t context);
  std::vector<Kind> kinds_;
};

}  // namespace millrace
