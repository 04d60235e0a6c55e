// Embedder: texts to vectors, and pairs of texts to scores, around an Encoder: special tokens, the model's prompts,
// lengths, dimensions. Texts become tokens on any thread; vectors() and scores() belong to whoever has the backend. The
// model outlives it. A build without text takes token ids.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/encoder.h"
#include "session/loaded_model.h"

namespace millrace {

// A text, or a pair of them, as tokens.
struct EncodeInput {
  std::vector<Token> tokens;
  int32_t second = 0;  // where the second text begins; 0: there is none, or the model does not tell them apart

  Passage passage() const { return {tokens, second}; }
};

// How a pair of texts gets its score.
enum class Scoring : uint8_t {
  classifier,  // a head with one label reads both texts together: the sigmoid of its logit
  yes_no,      // a model that writes is asked whether the second answers the first: the share of "yes"
  cosine,      // the texts' vectors
};
std::string_view scoring_name(Scoring scoring);

struct EmbedText {
  std::string_view prompt;  // put in front of the text
  bool truncate = false;    // texts that are too long are cut; else they are refused
};

class Embedder {
 public:
  // What rerankers of the Qwen kind are asked unless the caller says otherwise.
  static constexpr std::string_view kInstruction =
      "Given a web search query, retrieve relevant passages that answer the query";

  // `scores`: score() will be asked for.
  static Result<std::unique_ptr<Embedder>> create(LoadedModel& model, EncoderOptions options, bool scores = false);

  const LoadedModel& model() const { return model_; }
  const Encoder& encoder() const { return *encoder_; }
  Scoring scoring() const { return scoring_; }
  bool normalised() const;

  // The prompt that the model's files have under a name ("query"); the error lists the names there are.
  Result<std::string> prompt_named(std::string_view name) const;

  // ---- any thread
  Result<EncodeInput> input(std::string_view text, const EmbedText& how = {}) const;
  Result<EncodeInput> input(std::vector<Token> tokens) const;  // as they are
  // What score() wants for a pair: one input, or two where vectors are compared.
  Result<std::vector<EncodeInput>> pair(std::string_view first, std::string_view second, bool truncate = false,
                                        std::string_view instruction = kInstruction) const;
  Result<void> check_dimensions(int64_t dimensions) const;

  // ---- the backend's thread
  // What the model gives for each input, in as few steps as they fit into: its vector as it is, or where a model is
  // asked yes or no the logits of both.
  Result<std::vector<std::vector<float>>> rows(std::span<const EncodeInput> inputs);
  // The same, finished.
  Result<std::vector<std::vector<float>>> vectors(std::span<const EncodeInput> inputs, int32_t dimensions = 0);
  // One for each pair, in [0, 1]; for cosines in [-1, 1].
  Result<std::vector<float>> scores(std::span<const std::vector<EncodeInput>> pairs);

  // ---- any thread: what rows mean
  // Of length 1 unless the model's files want vectors as they are. dimensions 0: all; else so many of the first.
  void finish(std::vector<float>& vector, int32_t dimensions) const;
  // The rows of pairs, in order: one score each.
  std::vector<float> scores_of(std::vector<std::vector<float>> rows) const;

 private:
  Embedder(LoadedModel& model, std::unique_ptr<Encoder> encoder, Scoring scoring)
      : model_(model), encoder_(std::move(encoder)), scoring_(scoring) {}
  Result<void> find_answers();
  Result<EncodeInput> question(std::string_view first, std::string_view second, bool truncate,
                               std::string_view instruction) const;

  LoadedModel& model_;
  std::unique_ptr<Encoder> encoder_;
  Scoring scoring_;
  Token yes_ = -1, no_ = -1;
};

}  // namespace millrace
