#include "cache/page_table.h"

#include <algorithm>

namespace millrace {

PageSlot PageTable::at(int position) const {
  int entry = position / page_tokens_;
  CHECK(position >= 0 && entry < size(), "position {} in a table of {} pages of {} tokens", position, size(),
        page_tokens_);
  return {pages_[static_cast<size_t>(entry)], position % page_tokens_};
}

int PageTable::held() const {
  return static_cast<int>(
      std::count_if(pages_.begin() + first_, pages_.end(), [](PageId page) { return page != kNoPage; }));
}

void PageTable::push(PageId page) {
  if (page == kNoPage && first_ == size()) ++first_;
  pages_.push_back(page);
}

PageId PageTable::replace(int entry, PageId page) {
  CHECK(entry >= 0 && entry < size(), "entry {} in a table of {}", entry, size());
  PageId old = std::exchange(pages_[static_cast<size_t>(entry)], page);
  if (page != kNoPage) first_ = std::min(first_, entry);
  while (first_ < size() && pages_[static_cast<size_t>(first_)] == kNoPage) ++first_;
  return old;
}

PageId PageTable::pop() {
  CHECK(size() > 0, "taking from an empty table");
  PageId page = pages_.back();
  pages_.pop_back();
  first_ = std::min(first_, size());
  return page;
}

void PageTable::clear() {
  pages_.clear();
  first_ = 0;
}

}  // namespace millrace
