// Python's sorted(): stable, by `<` on keys, an error where Python cannot compare.
#pragma once

#include <algorithm>
#include <numeric>

#include "text/template/run.h"

namespace millrace::jinja {

// The order of so many things, by before(i, j) -> Result<bool>: whether thing i must come before thing j. A merge sort
// of our own: a comparison can fail, and need not be an order at all (NaN), which std::sort does not allow.
template <class Before>
Result<std::vector<size_t>> merge_sort(Run& run, size_t count, Before before) {
  TRY_VOID(run.room_for(count * 2 * sizeof(size_t)));
  std::vector<size_t> from(count), to(count);
  std::iota(from.begin(), from.end(), size_t{0});
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t start = 0; start < count; start += 2 * width) {
      size_t left = start, middle = std::min(start + width, count);
      size_t right = middle, end = std::min(start + 2 * width, count);
      for (size_t out = start; out < end; ++out) {
        bool take_right = left >= middle;
        if (!take_right && right < end) {
          TRY(take_right, before(from[right], from[left]));
        }
        to[out] = from[take_right ? right++ : left++];
      }
    }
    from.swap(to);
  }
  return from;
}

// The order of keys: positions, smallest key first (largest first if reversed; equal keys keep their order either way).
Result<std::vector<size_t>> sorted_positions(Run& run, const Values& keys, bool reverse);
// Dict entries by key, as json.dumps(sort_keys=True) orders them.
Result<std::vector<Dict::Entry>> sort_entries(Run& run, const std::vector<Dict::Entry>& entries);

}  // namespace millrace::jinja
