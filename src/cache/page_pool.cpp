#include "cache/page_pool.h"

#include "base/check.h"

namespace millrace {

PagePool::PagePool(int pages) : counts_(static_cast<size_t>(pages), 0) {
  free_.reserve(static_cast<size_t>(pages));
  for (PageId page = pages; page-- > 0;) free_.push_back(page);
}

PageId PagePool::take() {
  if (free_.empty()) return kNoPage;
  PageId page = free_.back();
  free_.pop_back();
  counts_[static_cast<size_t>(page)] = 1;
  return page;
}

void PagePool::keep(PageId page) {
  CHECK(page >= 0 && page < pages() && holders(page) > 0, "keeping page {} that nobody holds", page);
  ++counts_[static_cast<size_t>(page)];
}

bool PagePool::drop(PageId page) {
  CHECK(page >= 0 && page < pages() && holders(page) > 0, "dropping page {} that nobody holds", page);
  if (--counts_[static_cast<size_t>(page)] > 0) return false;
  free_.push_back(page);
  return true;
}

Result<void> PagePool::check(const std::vector<int>* expected) const {
  std::vector<bool> seen(counts_.size(), false);
  for (PageId page : free_) {
    if (page < 0 || page >= pages()) return error(Code::internal, "free list names page {} of {}", page, pages());
    if (seen[static_cast<size_t>(page)]) return error(Code::internal, "page {} is twice in the free list", page);
    if (holders(page) != 0) return error(Code::internal, "free page {} has {} holders", page, holders(page));
    seen[static_cast<size_t>(page)] = true;
  }
  for (PageId page = 0; page < pages(); ++page) {
    if (holders(page) < 0 || (holders(page) == 0) != seen[static_cast<size_t>(page)])
      return error(Code::internal, "page {} has {} holders and is {}in the free list", page, holders(page),
                   seen[static_cast<size_t>(page)] ? "" : "not ");
    if (expected != nullptr && holders(page) != (*expected)[static_cast<size_t>(page)])
      return error(Code::internal, "page {} counts {} holders, but {} hold it", page, holders(page),
                   (*expected)[static_cast<size_t>(page)]);
  }
  return {};
}

}  // namespace millrace
