// EntryLine: how far the keys and values of a head reach in the pages of one answer, and which streams are at hand to
// make more of them. Entry p is made of token p and the stream of position p - 1; the first has no stream and is empty,
// never seen. Entries may be made later than their tokens are computed; what is offered to others ends where they do.
// Integers only, so that the simulator runs on it too. Runner's thread.
#pragma once

#include <algorithm>

namespace millrace {

class EntryLine {
 public:
  // A step computes rows from `begin` on, in pages that count as the sequence's residence. In new pages everything
  // before `begin` was found in the cache, and as many entries more as the layout looks back.
  void step(int residence, int begin, int look_back) {
    if (residence != residence_) {
      residence_ = residence;
      whole_ = begin > 0 ? begin + look_back : 0;
      base_ = begin;
      kept_ = 0;
      return;
    }
    if (begin < end()) {  // computed again
      kept_ = std::max(0, begin - base_);
      base_ = std::min(base_, begin);
      whole_ = std::min(whole_, begin + 1);
    } else if (begin > end()) {
      base_ = begin;
      kept_ = 0;
    }
  }
  // Streams of the next rows came; guesses that turned out wrong are not among them. The oldest go if there is room for
  // fewer.
  void came(int rows, int room) {
    kept_ += rows;
    const int gone = std::max(0, kept_ - room);
    base_ += gone;
    kept_ -= gone;
  }
  // Entries before this are made. The last two streams they were made of stay: the last entry may be wanted once more.
  void made(int upto) {
    whole_ = std::max(whole_, upto);
    const int gone = std::clamp(upto - 2 - base_, 0, kept_);
    base_ += gone;
    kept_ -= gone;
  }
  void lose_streams() { base_ = end(), kept_ = 0; }

  int whole() const { return whole_; }  // entries [0, whole) lie in the pages
  int base() const { return base_; }
  int kept() const { return kept_; }
  int end() const { return base_ + kept_; }  // of the streams at hand
  bool has(int position) const { return position >= base_ && position < end(); }

 private:
  int residence_ = -1;
  int whole_ = 0;
  int base_ = 0, kept_ = 0;
};

}  // namespace millrace
