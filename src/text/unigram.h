// Unigram: the segmentation of a piece with the best sum of scores (Kudo, 2018), by dynamic programming over its bytes.
// Immutable once built; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/model.h"
#include "text/vocabulary.h"

namespace millrace {

// Byte strings and their tokens, walked one byte at a time.
class Trie {
 public:
  static constexpr uint32_t kRoot = 0, kNone = UINT32_MAX;

  Trie();
  void add(std::string_view text, Token token);
  uint32_t child(uint32_t node, char byte) const;  // kNone if there is none
  Token token(uint32_t node) const { return tokens_[node]; }
  size_t nodes() const { return tokens_.size(); }

 private:
  struct Edge {
    uint64_t key = UINT64_MAX;  // node times 256 plus byte
    uint32_t child = 0;
  };
  size_t slot(uint64_t key) const;
  void grow();

  std::vector<Token> tokens_;  // by node
  std::vector<Edge> edges_;    // a power of two, at most half full
};

struct UnigramOptions {
  Token unknown = kNoToken;
  bool byte_fallback = false;
};

class Unigram : public PieceModel {
 public:
  // `scores` has one per id; tokens that are not `usable` never match (they are special or stand for bytes).
  static Result<std::unique_ptr<Unigram>> build(std::shared_ptr<const Vocabulary> vocabulary,
                                                std::vector<double> scores, const std::vector<bool>& usable,
                                                double unknown_score, UnigramOptions options);

  void encode(std::string_view piece, MergeSpace& space, std::vector<Token>& out) const override;

 private:
  Unigram() = default;
  void emit(std::string_view text, Token token, std::vector<Token>& out) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  UnigramOptions options_;
  Trie trie_;
  std::array<Token, 256> fallback_{};
};

}  // namespace millrace
