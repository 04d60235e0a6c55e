// Guesses by a smaller model with the same vocabulary. It draws with the answer's own sampler and random numbers, so
// where the two models mostly agree they mostly choose the same token. What it keeps of a token depends on the tokens
// up to it, so it lies in the target's own pages, as further layers: shared, evicted, moved out and saved with them
// (ExecutorOptions::beside). That of prompts is made in the step that computes them; that of an answer may wait for its
// next guess, a few tokens at most, and what is offered to others ends where it does. Guesses write too, behind the
// known tokens: what they left is used where they were right. A model that keeps a state has a store and a prefix tree
// of its own instead, planned and charged at create(): the target does not go back to where a state stands. All answers
// of a step are guessed for together. Runner's thread.
#pragma once

#include <map>
#include <memory>

#include "cache/kv_cache.h"
#include "engine/draft/drafter.h"
#include "engine/executor.h"

namespace millrace {

class ModelDrafter : public Drafter {
 public:
  // What it keeps of every token, to be planned with the target's cache; nothing of a model with states.
  static BesideLayers beside(const ModelSpec& model);
  // The model, the target and the backend outlive it. The target was planned with beside(), as the layers from `first`
  // on of those it has beside its own. Refused if the model cannot guess for the target.
  static Result<std::unique_ptr<Drafter>> create(const Model& model, Executor& target, Backend& backend, int first = 0);
  std::string_view name() const override { return "model"; }
  bool observes() const override { return own_ == nullptr; }
  void observe(std::span<Observed> rows) override;
  void propose(std::span<const DraftAsk> asks) override;
  bool repeats_itself() const override { return true; }
  void forget(RequestId request) override;

 private:
  struct Track {
    std::vector<Token> line;            // the answer's tokens and guesses after them
    int computed = 0;                   // of them, what is kept is there
    std::span<const PageTable> tables;  // in these pages
    int residence = -1, begin = -1;     // of the target's pages, and the step they were last looked at for
    SequencePages pages;                // of its own store
    int64_t used = 0;                   // when, for who goes first there
    bool asked = false;                 // in this call, so they stay
  };
  struct PassShare {  // what one ask has of a pass
    Track* track = nullptr;
    const DraftAsk* ask = nullptr;  // null: nothing is guessed
    bool open = true;               // wants more
    int count = 0;                  // rows of this pass
  };
  ModelDrafter(std::unique_ptr<Executor> executor, bool own);
  void settle(Track& track, int residence, int begin, std::span<const Token> tokens);
  void read_own(Track& track, const DraftAsk& ask);
  bool reserve(Track& track, int upto);
  bool drop_oldest();
  bool pass(std::span<PassShare> parts);
  bool choose(const PassShare& part, std::span<const float> logits);

  std::unique_ptr<Executor> executor_;
  std::unique_ptr<KvCache> own_;  // null: in the target's pages
  int lazy_ = 0;                  // tokens of an answer that may wait
  SamplerScratch scratch_;
  std::map<std::pair<RequestId, int>, Track> tracks_;
  std::vector<PassShare> parts_;
  std::vector<Chunk> chunks_;
  int64_t calls_ = 0, opened_ = 0;
};

}  // namespace millrace
