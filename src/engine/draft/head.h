// Guesses by a head on the target's own streams: Medusa, MTP or EAGLE-3 (model/heads). The streams are taken from the
// steps the target runs anyway. Entry p is made of token p and the stream of position p - 1, so it depends on tokens up
// to p only. Where streams are missing, because a prefix was found in the cache or nothing was guessed for long, the
// head sees a window that begins after the hole: its positions are counted from there, and only differences matter.
// Keys and values of entries and the streams that wait to become some lie in slots, one for each sequence that can run,
// planned and charged at create(), where the model's streams are; only logits come to the host. Runner's thread.
#pragma once

#include <map>
#include <memory>

#include "cache/store.h"
#include "engine/draft/drafter.h"
#include "model/heads/head.h"

namespace millrace {

class HeadDrafter : public Drafter {
 public:
  // Head and backend outlive it.
  // The target is tapped for it.
  static Result<std::unique_ptr<Drafter>> create(const Head& head, Executor& target, Backend& backend);
  std::string_view name() const override;
  void observe(std::span<const Observed> rows) override;
  void propose(std::span<const DraftAsk> asks) override;
  void forget(RequestId request) override;

 private:
  struct Track {
    int start = 0;            // position of the stream its first entry is made of
    std::vector<Token> line;  // tokens of the entries in the store, from start + 1 on
    int base = 0, kept = 0;   // streams of positions base, base + 1 ... lie in the slot, so many
    int slot = -1;            // -1: none, and nothing is kept
    int64_t used = 0;         // when, for who goes first
    int next() const { return start + static_cast<int>(line.size()); }  // position of the stream the next entry needs
  };
  struct Part {  // an ask under way
    const DraftAsk* ask;
    Track* track;
    int rows;                                 // fresh entries
    bool open;                                // wants more
    std::vector<std::vector<Token>> choices;  // by place, likeliest first
  };
  HeadDrafter(const Head& head, const Executor& target);
  Result<void> take_memory(Backend& backend, const KvForm& kv);
  void copy_rows(Tensor from, int64_t first, Tensor to, int64_t at, int64_t rows);
  template <class F>
  void each_stretch(const Track& track, int first, int rows, F body) const;
  void keep(Track& track, const Observed& seen);
  int settle(const DraftAsk& ask, Track& track);
  void take_slot(Track& track);
  void guess(std::span<Part> parts);
  void guess_medusa(std::span<Part> parts);
  void stage_fresh(std::span<Part> parts);
  void stage_next(std::span<Part> parts, Tensor next);
  void stage_row(int row, int sequence, Token token, int position);
  void choose(Part& part, const float* logits);
  bool choose_all(std::span<Part> parts, Tensor logits);
  const float* brought(Tensor logits);
  Tensor input(int64_t cols) const;

  const Head& head_;
  const int64_t feature_;  // numbers of a stream
  int rows_, sequences_, context_;
  int keep_;  // streams of a slot
  int slot_pages_ = 0;
  std::unique_ptr<Ops> ops_;
  std::optional<Store> store_;
  std::map<std::pair<RequestId, int>, Track> tracks_;
  std::vector<Track*> slots_;  // by slot
  int64_t calls_ = 0;
  std::vector<Part> parts_;
  std::vector<float> full_;  // logits of the target's tokens
  std::vector<Token> context_tokens_;
  std::vector<Token> banned_;
  SamplerScratch scratch_;

  Step step_;
  int32_t *tokens_ = nullptr, *positions_ = nullptr, *visible_ = nullptr, *sequence_ = nullptr, *first_row_ = nullptr,
          *wanted_rows_ = nullptr, *pages_ = nullptr;
  std::byte* in_ = nullptr;   // [rows, feature]
  Tensor streams_;            // [sequences * keep, feature]; position p of a slot lies at p % keep
  float* results_ = nullptr;  // [sequences, vocab] on the host, if the machine is apart
  std::vector<PageTables> groups_;
};

}  // namespace millrace
