// PagePool: which pages are in use, and by how many holders. A page is free exactly if its count is zero; whoever takes
// or keeps a page drops it once. Engine thread only. Integers only: the bytes are in a Store.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "cache/spec.h"

namespace millrace {

class PagePool {
 public:
  explicit PagePool(int pages);

  [[nodiscard]] PageId take();  // a free page, held once; kNoPage if there is none
  void keep(PageId page);       // one more holder of a page in use
  bool drop(PageId page);       // one holder fewer; true if the page became free

  int holders(PageId page) const { return counts_[static_cast<size_t>(page)]; }
  bool alone(PageId page) const { return holders(page) == 1; }
  int pages() const { return static_cast<int>(counts_.size()); }
  int free() const { return static_cast<int>(free_.size()); }
  int used() const { return pages() - free(); }

  // Free list and counts agree, and the counts are those given (one per page), if any.
  Result<void> check(const std::vector<int>* expected = nullptr) const;

 private:
  std::vector<int32_t> counts_;
  std::vector<PageId> free_;  // last in, first out: the page used last is warm
};

}  // namespace millrace
