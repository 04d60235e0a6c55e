// TokenizerParts: what a Tokenizer is made of, for the files that load and export it. Filled by a loader, then
// immutable except for the pool of working memory.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/gguf_vocab.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"
#include "text/word_cache.h"

namespace millrace {

// One thread's working memory.
struct TokenizerSpace {
  RegexScratch regex;
  MergeSpace merge;
  WordCache cache;
  std::string text;
  bool specials = false;  // of the call under way: control tokens in the text count
};

enum class ModelKind : uint8_t { bpe, score_bpe, unigram, word_piece, word_level };

// A part of two texts put together: a token, or one of the texts.
struct PairPart {
  Token token = -1;
  int text = 0;         // 1 or 2: that text; 0: the token
  bool second = false;  // of type 1
};

struct TokenizerParts {
  ModelKind kind = ModelKind::bpe;
  std::shared_ptr<const Vocabulary> vocabulary;  // all tokens, as the file writes them
  std::unique_ptr<const PieceModel> model;
  Normalizer normalizer;
  PreTokenizer pre;
  WordCutter cutter;               // of BPE over characters
  AddedTokens raw_added;           // looked for in the text as given
  AddedTokens normalized_added;    // looked for after normalisation
  std::vector<AddedToken> added;   // all of them
  std::vector<std::string> shown;  // by id: the text to decode where it differs from the vocabulary's
  std::vector<bool> is_special;    // by id
  Decoder decoder;
  std::vector<Token> prefix, suffix;  // what add_special adds
  std::vector<PairPart> pair;         // how two texts go together; empty: the files do not say
  SpecialTokens special;
  std::vector<Token> ends;
  bool byte_level = false;
  // For export: what the loaders read and nothing else needs.
  BpeOptions bpe_options;
  const Bpe* bpe = nullptr;  // the model, where it is one
  std::vector<float> scores;
  std::vector<uint8_t> gguf_types;
  std::string gguf_pre;

  Result<void> encode_text(std::string_view text, bool at_start, TokenizerSpace& space, GrowthBudget& budget,
                           std::vector<Token>& out) const;
  std::string_view shown_text(Token id) const;
  // Whether decoding may leave the token out. One that normalisation changes stays, as in Hugging Face's tokenizers.
  bool skipped(Token id) const {
    const auto index = static_cast<size_t>(id);
    return is_special[index] && (index >= shown.size() || shown[index].empty());
  }
  // Fills raw_added, normalized_added, is_special and shown from `added`.
  Result<void> index_added();
  std::unique_ptr<TokenizerSpace> take_space() const;
  void give_space(std::unique_ptr<TokenizerSpace> space) const;

  static Tokenizer finish(std::unique_ptr<TokenizerParts> parts);

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<TokenizerSpace>> spaces_;
};

// Tokens that end an answer although no file says so, by their text, as llama.cpp picks them; used where a model comes
// without a list. Also finds the ends of turns and messages and the tokens for filling in, where special lacks them.
void find_special_by_text(TokenizerParts& parts);

}  // namespace millrace
