// Bounds: constraints for a model's answers, from what clients send: the vocabulary as a grammar sees it, made on first
// use, and a cache of compiled grammars, bounded in bytes, of which one tenant's never push out another's share. Any
// thread; compiling is done on the caller's, and equal grammars asked for at once are compiled once.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/constraint.h"
#include "grammar/grammar.h"
#include "session/answer_part.h"
#include "session/loaded_model.h"

namespace millrace {

struct BoundOptions {
  bool continues = false;  // the answer goes on in the middle of a text, so a space in front of it stays
  std::string after =
      {};  // the grammar holds after this mark (the end of reasoning), control tokens as control_bytes()
};

struct BoundAnswer {
  std::shared_ptr<Constraint> constraint;
  std::vector<std::string> notes;  // what of the source was taken and does nothing
};

class Bounds {
 public:
  // The model outlives it.
  explicit Bounds(const LoadedModel& model, int64_t bytes = int64_t{512} << 20);

  Result<BoundAnswer> bind(const GrammarSource& source, const BoundOptions& options, const std::string& tenant = {});
  // From what another process's constraint gave as its source.
  Result<std::shared_ptr<Constraint>> constraint(const std::string& source, const std::string& tenant);
  // It is compiled, so that binding to it takes no time.
  bool knows(const GrammarSource& source);

  struct Counters {
    uint64_t compiled = 0, reused = 0;
    int64_t bytes = 0;
    size_t grammars = 0;
  };
  Counters counters();

 private:
  struct Entry {
    std::string key, tenant;
    std::shared_ptr<Grammar> grammar;
    int64_t bytes = 0;
  };
  Result<std::shared_ptr<const GrammarVocabulary>> vocabulary();
  void evict(const std::string& tenant);

  const LoadedModel& model_;
  const int64_t most_bytes_;
  std::mutex lock_;
  std::condition_variable done_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::vector<std::string> first_bytes_;  // of a first token, where that differs from inside a text; else empty
  std::list<Entry> entries_;              // the last used first
  std::map<std::string, std::list<Entry>::iterator, std::less<>> by_key_;
  std::map<std::string, bool, std::less<>> compiling_;
  std::map<std::string, int64_t, std::less<>> by_tenant_;
  int64_t bytes_ = 0;
  Counters counters_;
};

// The mark that ends reasoning, if the prompt leaves a section of it open at its end; else nothing.
std::string open_reasoning(const LoadedModel& model, std::span<const Token> prompt, Thinking thinking);

}  // namespace millrace
