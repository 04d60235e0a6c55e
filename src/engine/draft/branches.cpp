#include "engine/draft/branches.h"

#include <algorithm>

#include "base/check.h"
#include "cache/planted.h"

namespace millrace {
namespace {

// Entries of a table that tokens [begin, begin + tokens) lie in.
struct Entries {
  int first, last;
  Entries(const PageTable& table, int begin, int tokens)
      : first(begin / table.page_tokens()), last((begin + tokens - 1) / table.page_tokens()) {}
  int count() const { return last - first + 1; }
};

}  // namespace

int Branches::pages_for(const CacheLayout& layout, int tokens) {
  int pages = 0;
  for (const CacheGroup& group : layout.groups) pages += (tokens + group.page_tokens - 2) / group.page_tokens + 1;
  return pages;
}

bool Branches::fits(const CacheLayout& layout) {
  return std::none_of(layout.groups.begin(), layout.groups.end(), [](const auto& group) { return group.recurrent(); });
}

void Branches::begin_step() {
  taken_ = 0;
  used_ = 0;
  before_.clear();
}

bool Branches::open(int begin, std::span<const Token> tokens, std::span<const PageTable> own) {
  const auto count = static_cast<int>(tokens.size());
  int needed = 0;
  for (const PageTable& table : own) needed += Entries(table, begin, count).count();
  if (taken_ + needed > count_) return false;
  if (open_.size() == used_) open_.emplace_back();
  Branch& branch = open_[used_++];
  branch.begin = begin;
  branch.tokens.assign(tokens.begin(), tokens.end());
  branch.tables.assign(own.begin(), own.end());
  for (PageTable& table : branch.tables) {
    const Entries entries(table, begin, count);
    CHECK(entries.last < table.size(), "{} pages do not hold {} tokens", table.size(), begin + count);
    for (int entry = entries.first; entry <= entries.last; ++entry) {
      const PageId spare = first_ + taken_++;
      const PageId replaced = table.replace(entry, spare);
      // What is before the branch, and what a head has made of its first token.
      if (entry == entries.first && !PLANTED(branch_without_past)) before_.push_back({replaced, spare});
    }
  }
  return true;
}

std::vector<PageCopy> Branches::keep(const Branch& branch, int tokens, std::span<const PageTable> own) const {
  std::vector<PageCopy> copies;
  if (PLANTED(branch_left_behind)) return copies;
  for (size_t group = 0; group < own.size(); ++group) {
    const Entries entries(own[group], branch.begin, tokens);
    for (int entry = entries.first; entry <= entries.last; ++entry)
      copies.push_back({branch.tables[group][entry], own[group][entry]});
  }
  return copies;
}

}  // namespace millrace
