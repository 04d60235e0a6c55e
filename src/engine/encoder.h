// Encoder: turns whole texts into vectors. Each text is one sequence of a step, computed uncut and without padding, so
// that nothing is kept afterwards: keys and values of one layer at a time lie in a store that every layer writes anew.
// Everything is planned and taken at create(); a step allocates nothing. A text's bits do not depend on the others of
// its step. Engine thread only, or whoever has the backend to himself.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "base/token.h"
#include "model/model.h"
#include "tensor/dtype.h"

namespace millrace {

struct EncoderOptions {
  int32_t context = 0;     // tokens of the longest text; 0: as many as the model was made for, at most kMostContext
  int32_t rows = 0;        // tokens computed in one step, all texts together; 0: as many as the longest text, at least
                           // kUsualRows
  int32_t sequences = 64;  // texts of one step
  KvForm kv;               // what keys and values are rounded to
  bool logits = false;     // logits() may be asked for
  std::optional<Pooling> pooling = {};  // unless the model's files say, the last row of decoders

  static constexpr int32_t kMostContext = 8192, kUsualRows = 512;
};

// One text, or a pair of them.
struct Passage {
  std::span<const Token> tokens;
  int32_t second = 0;  // tokens from here on are of the second text; 0: there is none
};

// A vector to length 1; zeros stay.
void normalise(std::span<float> vector);
// The share of `yes` between two logits.
float yes_share(float yes, float no);

class Encoder {
 public:
  struct Plan {
    EncoderOptions options;  // zeros filled in
    Pooling pooling = Pooling::mean;
    int64_t kv_bytes = 0, workspace_bytes = 0, staging_bytes = 0;
    int32_t pages = 0;
    int64_t page_bytes = 0;
    int64_t bytes() const { return kv_bytes + workspace_bytes + staging_bytes; }
  };
  static Result<Plan> plan(const Model& model, const Backend& backend, const EncoderOptions& options);
  // The model and the backend outlive the encoder. Refused with the numbers if it does not fit the backend's limit.
  static Result<std::unique_ptr<Encoder>> create(const Model& model, Backend& backend, const EncoderOptions& options);

  const EncoderOptions& options() const { return plan_.options; }
  const Plan& planned() const { return plan_; }
  const Model& model() const { return model_; }
  Pooling pooling() const { return plan_.pooling; }
  int32_t width() const;  // of a vector

  // Whether a text can be encoded at all; the error has the numbers.
  Result<void> check(const Passage& passage) const;
  // How many of the passages, from the first on, one step takes. At least one.
  size_t fitting(std::span<const Passage> passages) const;
  // One step of checked passages that fit: [passages, width], on the host, valid until the next step.
  Result<Tensor> run(std::span<const Passage> passages);
  // The same, but of each passage the logits of the token after its last: [passages, vocab].
  Result<Tensor> logits(std::span<const Passage> passages);

 private:
  Encoder(const Model& model, Plan plan, bool apart) : model_(model), plan_(std::move(plan)), apart_(apart) {}
  Result<void> take_memory(Backend& backend);
  void stage(std::span<const Passage> passages, bool all_rows);
  Result<Tensor> fetched(Tensor rows);

  const Model& model_;
  Plan plan_;
  bool apart_;
  std::unique_ptr<Ops> ops_;
  std::vector<KvView> views_;  // one per layer, all over the same bytes
  float* results_ = nullptr;   // on the host, if the machine is apart

  Step step_;
  PageTables tables_;
  int32_t *tokens_ = nullptr, *positions_ = nullptr, *visible_ = nullptr, *types_ = nullptr, *sequence_ = nullptr,
          *first_row_ = nullptr, *wanted_rows_ = nullptr, *pages_ = nullptr;
};

}  // namespace millrace
