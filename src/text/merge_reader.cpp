#include "text/merge_reader.h"

namespace millrace {

Result<void> MergeReader::add(std::string_view left, std::string_view right) {
  if (right.size() < prefix_) {
    return error(Code::invalid, "merge {} lacks the prefix of tokens inside a word", rank_ + parts_.size() / 2);
  }
  parts_.push_back(left);
  parts_.push_back(right);
  if (parts_.size() == 2 * kBatch) return flush();
  return {};
}

Result<void> MergeReader::flush() {
  const size_t merges = parts_.size() / 2;
  joined_.clear();
  for (size_t i = 0; i < merges; ++i) joined_.append(parts_[2 * i]).append(parts_[2 * i + 1].substr(prefix_));
  const char* at = joined_.data();
  for (size_t i = 0; i < merges; ++i) {
    const size_t size = parts_[2 * i].size() + parts_[2 * i + 1].size() - prefix_;
    parts_.emplace_back(at, size);
    at += size;
  }
  std::vector<Token> found(parts_.size());
  vocabulary_.find_all(parts_, found);
  for (size_t i = 0; i < merges; ++i) {
    if (found[2 * i] != kNoToken && found[2 * i + 1] != kNoToken) pairs_.prefetch(found[2 * i], found[2 * i + 1]);
  }
  for (size_t i = 0; i < merges; ++i, ++rank_) {
    const Token left = found[2 * i], right = found[2 * i + 1], whole = found[2 * merges + i];
    if (left != kNoToken && right != kNoToken && whole != kNoToken) {
      pairs_.add(left, right, {rank_, whole}, strict_);
    } else if (strict_) {
      return error(Code::invalid, "merge {} of '{}' and '{}' uses a token that is not in the vocabulary", rank_,
                   parts_[2 * i], parts_[2 * i + 1]);
    }
  }
  parts_.clear();
  return {};
}

}  // namespace millrace
