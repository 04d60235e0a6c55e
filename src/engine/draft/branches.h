// Branches: other ways in which answers may go on, computed in the same step as what is guessed first. Each is a
// sequence of its own from the answer's last known token on: it reads the answer's pages, and where it writes it has
// spare ones, with a copy of what the first of them held before. So a row of a branch is computed as it would be alone,
// to the bit, by any attention. What turns out right is copied back over the answer's own pages. Spare pages are nobody
// else's: the cache does not know of them. Not for layouts with states. Engine thread or runner's, whoever runs steps.
#pragma once

#include <span>
#include <vector>

#include "base/token.h"
#include "cache/page_table.h"
#include "cache/spec.h"

namespace millrace {

struct Branch {
  int begin = 0;              // position of the last known token
  std::vector<Token> tokens;  // that one, then guesses
  std::vector<PageTable> tables;
};

class Branches {
 public:
  // Pages [first, first + count) of the store are spare.
  Branches(PageId first, int count) : first_(first), count_(count) {}
  // Spare pages that a branch of so many tokens may need.
  static int pages_for(const CacheLayout& layout, int tokens);
  static bool fits(const CacheLayout& layout);  // whether there can be branches at all

  void begin_step();
  // False: there are no spare pages left. `own` are the answer's tables, with room for as many tokens.
  bool open(int begin, std::span<const Token> tokens, std::span<const PageTable> own);
  const Branch& at(size_t index) const { return open_[index]; }
  size_t size() const { return used_; }
  // To be done before the step's rows are computed.
  std::span<const PageCopy> before() const { return before_; }
  // To be done after them, if the first `tokens` tokens of a branch are right.
  std::vector<PageCopy> keep(const Branch& branch, int tokens, std::span<const PageTable> own) const;

 private:
  PageId first_;
  int count_, taken_ = 0;
  std::vector<Branch> open_;  // the first `used_` belong to this step
  size_t used_ = 0;
  std::vector<PageCopy> before_;
};

}  // namespace millrace
