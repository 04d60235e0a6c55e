// Head: a small network that guesses tokens from the streams of a target model, in the layouts their makers publish:
//
//   medusa   for each of the next tokens a product of its own on the target's last row, h + silu(W h + b), and a
//            vocabulary of its own
//   mtp      one layer over [norm(embedding of a token), norm(stream after the last layer before it)]; the target's
//            vocabulary
//   eagle3   one layer whose attention reads [norm(embedding), norm(feature)]; the feature is three streams fused, the
//            vocabulary a part of the target's
//
// Entry p of mtp and eagle3 is made of token p and the feature of position p - 1, and guesses token p + 1; its own sum
// is the feature of the next entry. What differs is data here. Weights lie on the target's backend. Loaded on one
// thread, then immutable.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/token.h"
#include "model/model.h"
#include "tensor/checkpoint.h"

namespace millrace {

struct HeadSpec {
  enum class Kind : uint8_t { medusa, mtp, eagle3 };
  Kind kind = Kind::medusa;
  int32_t width = 0;             // of the target's streams and of the head's
  int32_t vocab = 0;             // tokens it can guess
  std::vector<int32_t> taps;     // streams of the target: entering these layers; the number of layers: after the last
  int32_t guesses = 0;           // medusa: how many tokens ahead
  bool normed_residual = false;  // eagle3: the feature is added after its norm
  GqaSpec attention;             // mtp, eagle3
  DenseSpec ffn;

  int64_t feature() const { return static_cast<int64_t>(taps.size()) * width; }
};

struct HeadWeights {
  struct Guess {
    Weight change, out;  // [width, width] with a bias, [vocab, width]
  };
  std::vector<Guess> guesses;  // medusa
  Weight fuse;                 // eagle3: [width, feature]; mtp: [width, 2 * width]
  Norm token_norm, feature_norm, mixer_norm, ffn_norm, final_norm;
  GqaWeights attention;
  DenseWeights ffn;
  Weight embedding, out;  // the target's where the file has none
};

class Head {
 public:
  // Whether a checkpoint is one of these; load() says what is wrong with it.
  static bool is_head(const Checkpoint& checkpoint);
  // Checkpoint, target and backend outlive it.
  static Result<std::unique_ptr<Head>> load(const Checkpoint& checkpoint, const Model& target, Backend& backend);
  // The MTP layer that a model's own file has behind its layers.
  static Result<std::unique_ptr<Head>> load_own(const Checkpoint& checkpoint, const Model& target, Backend& backend);
  // As large as one that is published for such a target; what it guesses is noise. For benchmarks.
  static Result<std::unique_ptr<Head>> random(HeadSpec::Kind kind, const Model& target, DType type, uint64_t seed,
                                              Backend& backend);

  const HeadSpec& spec() const { return spec_; }
  const HeadWeights& weights() const { return weights_; }
  const Model& target() const { return target_; }
  // The target's token for each of the head's; empty: the same.
  std::span<const Token> tokens() const { return tokens_; }

 private:
  explicit Head(const Model& target) : target_(target) {}
  friend class HeadLoader;
  const Model& target_;
  HeadSpec spec_;
  HeadWeights weights_;
  std::vector<Token> tokens_;
};

// Refuses models whose streams no head reads.
Result<void> check_target(const ModelSpec& target);

// What a pass over entries gives for its wanted rows: logits [wanted, vocab] and features of the next entries
// [wanted, width], in the Ops' scratch until the next step.
struct HeadOutput {
  Tensor logits, next;
};
// mtp, eagle3. The step's positions are those of entries; `feature` has a row for each: streams as tapped (`fresh`), or
// what an earlier pass gave as `next`. Entries see those from the last multiple of `grid` on; 0: all.
HeadOutput run_head(Ops& ops, const Head& head, const KvView& kv, const Step& step, Tensor feature, bool fresh,
                    int32_t grid = 0);
// medusa: logits [rows, vocab] of the token `ahead` (from 0) places after the next one. The stream after the last layer
// is read; the target's own last norm is part of this.
Tensor run_medusa(Ops& ops, const Head& head, int ahead, const Step& step, Tensor stream);

int64_t head_workspace(const Head& head, int32_t max_rows, int32_t max_wanted);

}  // namespace millrace
