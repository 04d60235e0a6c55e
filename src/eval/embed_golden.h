// Golden vectors and scores: what another implementation computed for whole texts, stored beside a model as
// golden.safetensors: input_ids [texts, longest], lengths [texts], and vectors [texts, width], or logits and scores
// [texts] with token_type_ids. The check runs the texts together and one by one, wants the same bits both times, and
// measures the distance. One thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token.h"
#include "engine/encoder.h"
#include "eval/golden.h"

namespace millrace {

struct EmbedGolden {
  struct Text {
    std::vector<Token> tokens;
    int32_t second = 0;           // where the second text of a pair begins; 0: there is none
    std::vector<float> expected;  // the vector, or one score
  };
  std::vector<Text> texts;
  bool scores = false;
  Token yes = -1, no = -1;  // a score is softmax over the logits of these two; -1: the sigmoid of the one logit
};

bool is_embed_golden(const std::filesystem::path& file);  // whether read_embed_golden() is meant for it
Result<EmbedGolden> read_embed_golden(const std::filesystem::path& file);

struct EmbedResult {
  int texts = 0;
  double cosine = 1;      // the least over all texts
  double difference = 0;  // the largest, of all numbers
  double largest = 0;     // |number| that was expected
  std::string failure;    // why it does not pass; empty: it passes
  bool passed() const { return failure.empty(); }
};

EncoderOptions embed_golden_options(const EmbedGolden& golden);

// reference and float32: cosine >= 0.9999, scores within 1e-3. reduced: 0.999 and 2e-2.
Result<EmbedResult> check_embed_golden(Encoder& encoder, const EmbedGolden& golden, GoldenRule rule);

}  // namespace millrace
