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
  auto here = [](PageId page) { return page != kNoPage; };
  return static_cast<int>((gap_ > 0 ? pinned_ : 0) + std::count_if(pages_.begin() + first(), pages_.end(), here));
}

void PageTable::push(PageId page) {
  if (page == kNoPage && pinned_ + gap_ == size()) ++gap_;
  pages_.push_back(page);
}

PageId PageTable::replace(int entry, PageId page) {
  CHECK(entry >= 0 && entry < size(), "entry {} in a table of {}", entry, size());
  PageId old = std::exchange(pages_[static_cast<size_t>(entry)], page);
  if (page != kNoPage && entry >= pinned_) gap_ = std::min(gap_, entry - pinned_);
  while (pinned_ + gap_ < size() && pages_[static_cast<size_t>(pinned_ + gap_)] == kNoPage) ++gap_;
  return old;
}

PageId PageTable::pop() {
  CHECK(size() > 0, "taking from an empty table");
  PageId page = pages_.back();
  pages_.pop_back();
  gap_ = std::min(gap_, std::max(0, size() - pinned_));
  return page;
}

void PageTable::clear() {
  pages_.clear();
  gap_ = 0;
}

}  // namespace millrace
