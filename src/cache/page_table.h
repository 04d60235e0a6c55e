// PageTable: where the tokens of one sequence are, for one group. Entry i is the page of positions [i * page_tokens,
// (i + 1) * page_tokens), or kNoPage once it left the window; a recurrent group has the one entry 0, the state. Plain
// bookkeeping: whoever writes entries keeps the pool's counts. Engine thread only.
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
  explicit PageTable(int page_tokens) : page_tokens_(page_tokens) {}

  PageSlot at(int position) const;
  int page_tokens() const { return page_tokens_; }
  int size() const { return static_cast<int>(pages_.size()); }  // entries, empty ones included
  int first() const { return first_; }                          // entries before it are empty
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
  int first_ = 0;
};

}  // namespace millrace
