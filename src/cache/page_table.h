// PageTable: where the tokens of one sequence are, for one group. Entry i is the page of positions [i * page_tokens,
// (i + 1) * page_tokens), or kNoPage once it left the window: empty ones follow each other, after the pinned ones if
// the group has such. A recurrent group has the one entry 0, the state. Plain bookkeeping: whoever writes entries keeps
// the pool's counts. Engine thread only.
#pragma once

#include <span>
#include <vector>

#include "base/check.h"
#include "cache/spec.h"

namespace millrace {

struct PageSlot {
  PageId page = kNoPage;
  int offset = 0;  // token within the page
};

class PageTable {
 public:
  explicit PageTable(int page_tokens, int pinned = 0) : page_tokens_(page_tokens), pinned_(pinned) {}

  PageSlot at(int position) const;
  int page_tokens() const { return page_tokens_; }
  int size() const { return static_cast<int>(pages_.size()); }  // entries, empty ones included
  int first() const { return gap_ > 0 ? pinned_ + gap_ : 0; }   // entries before it are empty or pinned
  int gap() const { return gap_; }                              // how many are empty
  int pinned() const { return pinned_; }                        // entries that stay, if there are as many
  int held() const;                                             // entries that are not empty
  std::span<const PageId> pages() const { return pages_; }
  PageId operator[](int entry) const { return pages_[static_cast<size_t>(entry)]; }

  void push(PageId page);
  PageId replace(int entry, PageId page);  // returns what was there
  PageId pop();                            // removes the last entry and returns it
  void clear();

 private:
  std::vector<PageId> pages_;
  int page_tokens_;
  int pinned_ = 0, gap_ = 0;
};

}  // namespace millrace
