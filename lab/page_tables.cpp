// What do the copies of page tables cost a step? A plan's item copies the tables of its sequence (engine/runner.cpp),
// the executor copies them once more to where the backend reads them (engine/executor.cpp), and a GPU's driver brings
// them over. Build, after the library:
//   g++ -std=c++20 -O2 -Isrc lab/page_tables.cpp build/release/src/{cache/libmillrace_cache,base/libmillrace_base}.a
//   -lfmt -lpthread
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "cache/page_table.h"

using namespace millrace;
using Clock = std::chrono::steady_clock;

namespace {

double median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void measure(int sequences, int context, int groups) {
  constexpr int kPageTokens = 16;
  std::vector<std::vector<PageTable>> held(static_cast<size_t>(sequences));
  PageId next = 0;
  for (auto& tables : held) {
    for (int group = 0; group < groups; ++group) {
      tables.emplace_back(kPageTokens);
      for (int page = 0; page < context / kPageTokens; ++page) tables.back().push(next++);
    }
  }
  const auto stride = static_cast<size_t>(context / kPageTokens);
  std::vector<int32_t> staged(static_cast<size_t>(sequences * groups) * stride), apart(staged.size());
  std::vector<double> items, stage, over;
  std::vector<std::vector<PageTable>> copied;
  int64_t sum = 0;
  for (int run = 0; run < 501; ++run) {
    const auto a = Clock::now();
    copied = held;  // as the items of a step, whose room is kept
    const auto b = Clock::now();
    size_t at = 0;
    for (const auto& tables : copied) {
      for (const PageTable& table : tables) {
        std::copy(table.pages().begin(), table.pages().end(), staged.begin() + static_cast<long>(at));
        at += stride;
      }
    }
    const auto c = Clock::now();
    std::copy(staged.begin(), staged.end(), apart.begin());
    const auto d = Clock::now();
    sum += apart[static_cast<size_t>(run) % apart.size()];
    items.push_back(std::chrono::duration<double>(b - a).count());
    stage.push_back(std::chrono::duration<double>(c - b).count());
    over.push_back(std::chrono::duration<double>(d - c).count());
  }
  std::printf(
      "%3d sequences of %6d tokens, %d groups: %7zu bytes; items %6.1f us, staged %6.1f us, over %6.1f us (%ld)\n",
      sequences, context, groups, staged.size() * 4, median(items) * 1e6, median(stage) * 1e6, median(over) * 1e6,
      static_cast<long>(sum % 10));
}

}  // namespace

int main() {
  for (int groups : {1, 2}) {
    measure(64, 4096, groups);
    measure(256, 4096, groups);
    measure(64, 131072, groups);
  }
}
