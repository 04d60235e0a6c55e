// GrowthBudget: how many bytes the steps of a tokenizer may still add to the text of one call. Files say the steps and
// clients the text, so nothing else bounds what comes of both: characters that normal forms write out, marks in front
// of pieces, replacements. Real texts grow to three times their length at most where they are long; short ones may
// grow as they like. One thread.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/result.h"

namespace millrace {

class GrowthBudget {
 public:
  static constexpr size_t kTimes = 4, kBytes = 4 << 20;

  explicit GrowthBudget(size_t text_bytes) : GrowthBudget(text_bytes, kTimes * text_bytes + kBytes) {}
  GrowthBudget(size_t text_bytes, size_t added) : text_bytes_(text_bytes), added_(added), left_(added) {}

  size_t left() const { return left_; }
  // False, now and from then on, if that is more than is left.
  bool take(size_t bytes) {
    spent_ |= bytes > left_;
    left_ -= std::min(bytes, left_);
    return !spent_;
  }
  bool spent() const { return spent_; }
  Result<void> status() const {
    if (!spent_) return {};
    return error(Code::invalid,
                 "the tokenizer's steps make a text of {} bytes longer by more than {} bytes, the most that is allowed",
                 text_bytes_, added_);
  }

 private:
  size_t text_bytes_, added_, left_;
  bool spent_ = false;
};

}  // namespace millrace
