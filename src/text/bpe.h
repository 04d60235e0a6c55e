// Byte-pair encoding: by a list of merges (GPT-2 and its descendants over bytes, Llama 2 and Gemma over characters), or
// by the scores of tokens, as SentencePiece does it and GGUF files of such models store it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/model.h"
#include "text/vocabulary.h"

namespace millrace {

// The tokens of single characters: a table for all below U+10000, the vocabulary for the rest.
class CharTokens {
 public:
  CharTokens() = default;
  explicit CharTokens(const Vocabulary& vocabulary);
  // The token of the character that is all of `text`, kNoToken if it is none.
  Token find(std::string_view text, const Vocabulary& vocabulary) const;

 private:
  std::vector<Token> tokens_;
};

// What two neighbouring tokens become, by pair of ids.
class PairTable {
 public:
  void reserve(size_t pairs);
  struct Entry {
    Token left = kNoToken, right = kNoToken;
    Merge merge;
  };
  // A pair that is there already gets the new merge if `replace` is set.
  void add(Token left, Token right, Merge merge, bool replace);
  void prefetch(Token left, Token right) const { __builtin_prefetch(&entries_[slot(left, right)], 1); }
  Merge find(Token left, Token right) const {
    for (size_t at = slot(left, right);; at = (at + 1) & mask_) {
      const Entry& entry = entries_[at];
      if (entry.left == left && entry.right == right) return entry.merge;
      if (entry.left == kNoToken) return {};
    }
  }
  std::vector<Entry> in_order() const;  // by rank

 private:
  size_t slot(Token left, Token right) const {
    uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    key *= 0x9E3779B97F4A7C15;
    return (key ^ key >> 29) >> 20 & mask_;
  }
  void grow();

  std::vector<Entry> entries_ = std::vector<Entry>(16);
  size_t mask_ = 15, count_ = 0;
};

// How symbols that are no token are treated, and where tokens carry marks of their place in a word.
struct BpeOptions {
  bool byte_level = false;      // pieces and the texts of tokens are byte strings
  bool ignore_merges = false;   // a piece that is a token is that token
  bool byte_fallback = false;   // tokens <0x00> to <0xFF> stand for the bytes of what is no token
  bool newlines_whole = false;  // a run of newlines that is a token is that token
  bool fuse_unknown = false;
  Token unknown = kNoToken;
  std::string prefix, suffix;  // of symbols that continue, or end, a word
};

class Bpe : public PieceModel {
 public:
  // `vocabulary` is keyed by what pieces consist of: bytes at byte level, else text. `named` is keyed as in the file.
  static Result<std::unique_ptr<Bpe>> build(std::shared_ptr<const Vocabulary> vocabulary,
                                            std::shared_ptr<const Vocabulary> named, PairTable pairs, uint32_t ranks,
                                            BpeOptions options);

  void encode(std::string_view piece, MergeSpace& space, std::vector<Token>& out) const override;
  const PairTable& pairs() const { return pairs_; }

 private:
  Bpe() = default;
  void add_symbols(std::string_view piece, MergeSpace& space) const;
  // The tokens of a symbol that is no token; nothing if it has to be an unknown one.
  bool add_fallback(std::string_view symbol, uint32_t at, MergeSpace& space) const;

  std::shared_ptr<const Vocabulary> vocabulary_, named_;
  PairTable pairs_;
  uint32_t ranks_ = 0;
  BpeOptions options_;
  bool marked_ = false;                   // prefix or suffix is set
  bool all_bytes_ = false;                // every byte is a symbol and a token
  std::array<Token, 256> byte_tokens_{};  // at byte level, the token of each symbol
  CharTokens char_tokens_;                // else
  std::array<Token, 256> fallback_{};     // <0x00> ...
};

// SentencePiece's reading: any two neighbours whose texts together are a token may merge, the best score first.
class ScoreBpe : public PieceModel {
 public:
  // `scores` has one per id.
  static Result<std::unique_ptr<ScoreBpe>> build(std::shared_ptr<const Vocabulary> vocabulary,
                                                 const std::vector<float>& scores, Token unknown);

  void encode(std::string_view piece, MergeSpace& space, std::vector<Token>& out) const override;

 private:
  ScoreBpe() = default;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<uint32_t> ranks_;  // by id: place of its score among all scores, best first
  uint32_t rank_count_ = 0;
  Token unknown_ = kNoToken;
  CharTokens char_tokens_;
  std::array<Token, 256> fallback_{};
};

// Where a piece may be cut in front of a space mark without changing what a BPE model makes of
// it: everywhere except after the characters that stand before a mark inside some token. Cutting makes pieces that
// repeat.
class WordCutter {
 public:
  WordCutter() = default;
  // `mark` is what a space is written as. Looks at all tokens; cuts nothing where the mark itself is no token.
  WordCutter(const Vocabulary& vocabulary, std::string mark);

  bool enabled() const { return !mark_.empty(); }
  template <class Piece>
  void cut(std::string_view text, Piece&& piece) const {
    size_t start = 0;
    for (size_t at = text.find(mark_, 1); at != text.npos; at = text.find(mark_, at)) {
      if (cuts_after(text.substr(start, at - start))) {
        piece(text.substr(start, at - start));
        start = at;
      }
      // Nothing is cut inside a run of marks.
      while (text.compare(at, mark_.size(), mark_) == 0) at += mark_.size();
    }
    if (start < text.size()) piece(text.substr(start));
  }

 private:
  bool cuts_after(std::string_view before) const;

  std::string mark_;
  std::vector<std::string> joined_;  // characters after which there is no cut
};

}  // namespace millrace
