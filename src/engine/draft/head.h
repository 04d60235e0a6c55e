// Guesses by a head on the target's own streams: Medusa, MTP or EAGLE-3 (model/heads). The streams are taken from the
// steps the target runs anyway. Entry p is made of token p and the stream of position p - 1, so it depends on tokens up
// to p only, and its keys and values lie in the target's own pages, as one layer more: shared, evicted, moved out and
// saved with them (ExecutorOptions::beside). Entries of prompts are made in the step that computes them; those of an
// answer may wait for its next guess, a few at most. Streams that wait lie in slots, one for each sequence that can
// run, planned and charged at create(), where the model's streams are; only logits come to the host. Runner's thread.
#pragma once

#include <map>
#include <memory>

#include "cache/store.h"
#include "engine/draft/drafter.h"
#include "engine/draft/entries.h"
#include "engine/executor.h"
#include "model/heads/head.h"

namespace millrace {

class HeadDrafter : public Drafter {
 public:
  // What a head keeps of every token, to be planned with the target's cache; nothing of Medusa's.
  static BesideLayers beside(const HeadSpec& head);
  // Head and backend outlive it. The target was planned with beside(), as the layers from `first` on of those it has
  // beside its own, and is tapped for it.
  static Result<std::unique_ptr<Drafter>> create(const Head& head, Executor& target, Backend& backend, int first = 0);
  std::string_view name() const override;
  bool observes() const override { return true; }
  void observe(std::span<Observed> rows) override;
  void propose(std::span<const DraftAsk> asks) override;
  void forget(RequestId request) override;

 private:
  struct Track {
    EntryLine line;
    int slot = -1;     // -1: none, and no streams are at hand
    int64_t used = 0;  // when, for who goes first
  };
  struct Gap {  // entries to be made
    Track* track;
    std::span<const PageTable> tables;
    std::span<const Token> tokens;
    int from, upto;
  };
  struct OpenAsk {  // an ask under way
    const DraftAsk* ask;
    Track* track;
    int from;                                 // the first fresh entry
    bool open;                                // wants more
    std::vector<std::vector<Token>> choices;  // by place, likeliest first
  };
  HeadDrafter(const Head& head, const Executor& target);
  Result<void> take_memory(Backend& backend);
  void copy_rows(Tensor from, int64_t first, Tensor to, int64_t at, int64_t rows);
  template <class F>
  void each_stretch(const Track& track, int first, int rows, F body) const;
  Gap keep(Track& track, const Observed& seen);
  void make(std::span<Gap> gaps);
  void begin_lines(std::span<Gap> gaps);
  void free_arrays();
  void stage_pages(int sequence, std::span<const PageTable> tables);
  void stage_gap(int sequence, const Gap& gap, int rows);
  int settle(const DraftAsk& ask, Track& track);
  void take_slot(Track& track);
  void guess(std::span<OpenAsk> parts);
  void guess_medusa(std::span<OpenAsk> parts);
  void stage_fresh(std::span<OpenAsk> parts);
  void stage_next(std::span<OpenAsk> parts, Tensor next);
  void stage_row(int row, int sequence, Token token, int position);
  void choose(OpenAsk& part, const float* logits);
  bool choose_all(std::span<OpenAsk> parts, Tensor logits);
  bool best_do(std::span<const OpenAsk> parts) const;
  bool take_best(std::span<OpenAsk> parts, Tensor logits);
  const float* brought(Tensor logits);
  Tensor input(int64_t cols) const;

  const Head& head_;
  const int64_t feature_;  // numbers of a stream
  int rows_, sequences_, context_;
  int keep_;                       // streams of a slot
  int lazy_;                       // entries of an answer that may wait
  int look_back_;                  // of the cache's layout
  int group_ = 0;                  // whose pages entries lie in
  int shift_ = 0;                  // positions a row of a head is counted on, so that nothing sees entry 0
  int32_t stride_ = 0, lead_ = 0;  // of page tables: their entries, and of them those before position `shift_`
  KvView kv_;
  std::unique_ptr<Ops> ops_;
  std::map<std::pair<RequestId, int>, Track> tracks_;
  std::vector<Track*> slots_;  // by slot
  int64_t calls_ = 0;
  bool arrays_used_ = false;  // by a pass of which nothing was brought here
  std::vector<OpenAsk> parts_;
  std::vector<Gap> gaps_;
  std::vector<float> full_;  // logits of the target's tokens
  std::vector<int32_t> best_;
  std::vector<Token> context_tokens_;
  std::vector<Token> banned_;
  SamplerScratch scratch_;

  Step step_;
  int32_t *tokens_ = nullptr, *positions_ = nullptr, *visible_ = nullptr, *sequence_ = nullptr, *first_row_ = nullptr,
          *wanted_rows_ = nullptr, *pages_ = nullptr;
  std::byte* in_ = nullptr;   // [rows, feature]
  Tensor streams_;            // [sequences * keep, feature]; position p of a slot lies at p % keep
  Tensor nothing_;            // [sequences, the larger of feature and a key of all heads], zeros
  float* results_ = nullptr;  // [sequences, vocab] on the host, if the machine is apart
  std::vector<PageTables> groups_;
};

}  // namespace millrace
