// SentencePiece's unigram models as GGUF files store them (T5 and its family): its own normalisation (the longest
// replacement rule, spaces merged or not, a space in front), then the best segmentation.
#pragma once

#include <memory>
#include <vector>

#include "text/charsmap.h"
#include "text/gguf_vocab.h"
#include "text/model.h"
#include "text/vocabulary.h"

namespace millrace {

struct SpmUnigramOptions {
  Charsmap charsmap;
  bool space_prefix = true;
  bool merge_spaces = false;
  Token unknown = kNoToken;
};

// `scores` and `types` have one entry per id.
Result<std::unique_ptr<PieceModel>> build_spm_unigram(std::shared_ptr<const Vocabulary> vocabulary,
                                                      const std::vector<float>& scores,
                                                      const std::vector<GgufTokenType>& types,
                                                      SpmUnigramOptions options);

}  // namespace millrace
