// Guesses by a smaller model with the same vocabulary. It draws with the answer's own sampler and random numbers, so
// where the two models mostly agree they mostly choose the same token. Its keys and values lie in a store of its own,
// planned and charged at create(); prompts that begin alike share them there. All answers of a step are guessed for
// together. Runner's thread.
#pragma once

#include <map>
#include <memory>

#include "cache/kv_cache.h"
#include "engine/draft/drafter.h"
#include "engine/executor.h"

namespace millrace {

class ModelDrafter : public Drafter {
 public:
  // The model and the backend outlive it. Refused if the model cannot guess for the target.
  static Result<std::unique_ptr<Drafter>> create(const Model& model, const Executor& target, Backend& backend);
  std::string_view name() const override { return "model"; }
  void propose(std::span<const DraftAsk> asks) override;
  bool repeats_itself() const override { return true; }
  void forget(RequestId request) override;

 private:
  struct Track {
    SequencePages pages;
    std::vector<Token> line;   // the answer's tokens and guesses after them
    int computed = 0;          // of them, in the store
    int64_t used = 0;          // when, for who goes first
    int begin = 0, count = 0;  // of the pass under way
    bool asked = false;        // in this call, so its pages stay
  };
  explicit ModelDrafter(std::unique_ptr<Executor> executor);
  Track& catch_up(const DraftAsk& ask);
  bool reserve(Track& track, int upto);
  bool drop_oldest();
  bool pass(std::span<const DraftAsk> asks);
  void choose(const DraftAsk& ask, Track& track, std::span<const float> logits);

  std::unique_ptr<Executor> executor_;
  KvCache cache_;
  SamplerScratch scratch_;
  std::map<std::pair<RequestId, int>, Track> tracks_;
  std::vector<Track*> active_;  // by ask; null: it has all it wants
  std::vector<Chunk> chunks_;
  int64_t calls_ = 0, opened_ = 0;
};

}  // namespace millrace
