// Speculation: what --speculate names, ready to be made into a drafter: kinds that need no weights (ngram, suffix),
// draft models with the target's vocabulary and heads on its streams (Medusa, MTP, EAGLE-3), several of them separated
// by commas. Their weights lie on the target's backend and are charged to it. Made on one thread, then immutable.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/draft/drafter.h"
#include "model/heads/head.h"
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
  Result<std::unique_ptr<Drafter>> drafter(Executor& target, Backend& backend) const;

 private:
  struct Kind {
    std::string name;
    std::unique_ptr<Checkpoint> checkpoint;  // of a draft model or a head
    std::unique_ptr<Model> model;
    std::unique_ptr<Head> head;
  };
  static Result<Kind> open_one(const std::string& name, LoadedModel& target, int64_t context);
  std::vector<Kind> kinds_;
};

}  // namespace millrace
