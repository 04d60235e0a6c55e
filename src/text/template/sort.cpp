#include "text/template/sort.h"

#include "text/template/operators.h"

namespace millrace::jinja {

Result<std::vector<size_t>> sorted_positions(Run& run, const Values& keys, bool reverse) {
  return merge_sort(run, keys.size(), [&](size_t i, size_t j) {
    return reverse ? less(run, keys[j], keys[i]) : less(run, keys[i], keys[j]);
  });
}

Result<std::vector<Dict::Entry>> sort_entries(Run& run, const std::vector<Dict::Entry>& entries) {
  TRY(auto order, merge_sort(run, entries.size(),
                             [&](size_t i, size_t j) { return less(run, entries[i].first, entries[j].first); }));
  std::vector<Dict::Entry> sorted;
  sorted.reserve(entries.size());
  for (size_t i : order) sorted.push_back(entries[i]);
  return sorted;
}

}  // namespace millrace::jinja
