// MergeReader: makes the table of pairs from a model's list of merges, in order of rank. It looks tokens up in batches,
// because a quarter of a million merges are three times as many trips to memory. Used while a tokenizer is loaded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/bpe.h"
#include "text/vocabulary.h"

namespace millrace {

class MergeReader {
 public:
  // `prefix` bytes of a right part are left out of the whole. `strict`: a merge of tokens that are not in the
  // vocabulary is an error and the later of two equal merges counts (as in Hugging Face's tokenizers); else it is
  // ignored and the first one counts (as in llama.cpp).
  MergeReader(const Vocabulary& vocabulary, size_t prefix, bool strict)
      : vocabulary_(vocabulary), prefix_(prefix), strict_(strict) {}

  void reserve(size_t merges) { pairs_.reserve(merges); }
  // The parts have to stay where they are until flush().
  Result<void> add(std::string_view left, std::string_view right);
  Result<void> flush();
  uint32_t ranks() const { return rank_; }
  PairTable take() { return std::move(pairs_); }

 private:
  static constexpr size_t kBatch = 64;
  const Vocabulary& vocabulary_;
  size_t prefix_;
  bool strict_;
  std::vector<std::string_view> parts_;  // left, right, left, right ...
  std::string joined_;
  uint32_t rank_ = 0;
  PairTable pairs_;
};

}  // namespace millrace
