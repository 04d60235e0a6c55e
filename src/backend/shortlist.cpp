// Bringing results to the host where it can read them anyway. Shortlisting by the host: the group of shortlist_group.h
// as a loop over its threads.
#include <algorithm>
#include <memory>
#include <vector>

#include "backend/ops.h"
#include "backend/shortlist_group.h"
#include "base/check.h"

namespace millrace {
namespace {

using shortlisting::kThreads;
using shortlisting::State;

class HostGroup {
 public:
  void begin() { listed_ = 0; }
  template <class F>
  void each(F&& body) {
    for (int thread = 0; thread < kThreads; ++thread) body(thread, states_[thread]);
  }
  template <class F>
  float least(F&& get) {
    return reduce<float>(get, [](float a, float b) { return std::min(a, b); });
  }
  template <class F>
  float most(F&& get) {
    return reduce<float>(get, [](float a, float b) { return std::max(a, b); });
  }
  template <class F>
  int32_t sum(F&& get) {
    return reduce<int32_t>(get, [](int32_t a, int32_t b) { return a + b; });
  }
  template <class F>
  uint64_t wide_sum(F&& get) {
    return reduce<uint64_t>(get, [](uint64_t a, uint64_t b) { return a + b; });
  }
  template <class F>
  double total(F&& get) {
    return reduce<double>(get, [](double a, double b) { return a + b; });
  }
  template <class F>
  int32_t threads(F&& is) {
    return reduce<int32_t>([&](const State& state) { return is(state) ? 1 : 0; },
                           [](int32_t a, int32_t b) { return a + b; });
  }
  int32_t next() { return listed_++; }

 private:
  template <class T, class Get, class Join>
  T reduce(Get&& get, Join&& join) {
    T value = get(states_[0]);
    for (int thread = 1; thread < kThreads; ++thread) value = join(value, static_cast<T>(get(states_[thread])));
    return value;
  }

  State states_[kThreads];
  int32_t listed_ = 0;
};

// The largest number's place, the lowest of equals; -1 if one is not a number or all are -infinity.
int32_t place_of_largest(std::span<const float> row) {
  size_t best = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (std::isnan(row[i])) return -1;
    if (row[i] > row[best]) best = i;
  }
  return row.empty() ? -1 : static_cast<int32_t>(best);
}

}  // namespace

void shortlist_on_host(const ShortlistAsk& ask, std::span<const float> row, Shortlisted& found,
                       ShortlistToken* tokens) {
  found = {.best = place_of_largest(row), .tokens = tokens};
  if (found.best < 0) return;
  found.largest = row[static_cast<size_t>(found.best)];
  if (ask.kind != ShortlistKind::race && ask.kind != ShortlistKind::list) return;
  if (!std::isfinite(found.largest)) return;
  const auto cols = static_cast<int32_t>(row.size());
  const int32_t parts = shortlisting::parts_of(cols), room = shortlisting::listed_by_part(parts);
  CHECK(parts <= kShortlistParts, "{} logits, of at most {}", cols, kShortlistCols);
  auto group = std::make_unique<HostGroup>();
  std::vector<shortlisting::PartFindings> of(static_cast<size_t>(parts));
  std::vector<ShortlistToken> listed(kShortlistListed);
  for (int32_t part = 0; part < parts; ++part) {
    group->begin();
    shortlisting::shortlist_part(*group, ask, row.data(), cols, part, found.best, of[static_cast<size_t>(part)],
                                 listed.data() + int64_t{part} * room);
  }
  group->begin();
  shortlisting::shortlist_row(*group, ask, of.data(), listed.data(), cols, found.largest, found, tokens);
}

std::string Ops::fetch(Tensor rows, float* numbers, int32_t* best) {
  for (int64_t i = 0; i < rows.rows; ++i) {
    const std::span<const float> row = {rows.row(i), static_cast<size_t>(rows.cols)};
    if (numbers != nullptr) std::copy(row.begin(), row.end(), numbers + i * rows.cols);
    if (best != nullptr) best[i] = place_of_largest(row);
  }
  return {};
}

std::string Ops::fetch_shortlist(Tensor rows, const ShortlistBatch& batch, float* numbers) {
  for (int64_t i = 0; i < rows.rows; ++i) {
    const std::span<const float> row = {rows.row(i), static_cast<size_t>(rows.cols)};
    if (batch.asks[i].kind == ShortlistKind::whole) std::copy(row.begin(), row.end(), numbers + i * rows.cols);
    shortlist_on_host(batch.asks[i], row, batch.found[i], batch.tokens + i * kShortlistTokens);
  }
  return {};
}

}  // namespace millrace
