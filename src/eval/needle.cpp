#include "eval/needle.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "eval/divergence.h"

namespace millrace {
namespace {

// Runs the stretch but for its last token and adds what the last rows make of the tokens after them.
Result<void> ask_for(Executor& executor, std::span<const Token> stretch, int32_t answer, int64_t id,
                     NeedleFound& found) {
  KvCache cache(executor.layout(), executor.options().pages, 0);
  SequencePages pages = cache.open(id, {});
  const auto end = static_cast<int32_t>(stretch.size()) - 1;
  for (int32_t begin = 0; begin < end;) {
    const int32_t wanted_from = end - answer;
    // The rows that are asked for come in a step of their own: they alone have logits.
    const int32_t upto = begin < wanted_from ? std::min(wanted_from, begin + executor.options().rows) : end;
    const auto part = stretch.subspan(static_cast<size_t>(begin), static_cast<size_t>(upto - begin));
    CHECK(cache.reserve(pages, begin, upto), "the executor has pages for a sequence");
    executor.carry_out(cache);
    const int32_t wanted = begin < wanted_from ? 0 : answer;
    const Chunk chunk = {.tokens = part, .begin = begin, .tables = pages.tables, .wanted = wanted};
    const Tensor logits = executor.run({&chunk, 1});
    for (int32_t i = 0; i < wanted; ++i) {
      const std::span<const float> row(logits.row(i), static_cast<size_t>(logits.cols));
      const auto right = static_cast<size_t>(stretch[static_cast<size_t>(begin + i + 1)]);
      const double surprise = log_sum_exp(row) - static_cast<double>(row[right]);
      if (!std::isfinite(surprise)) return error(Code::corrupt, "logits at position {} are not finite", begin + i);
      found.surprise += surprise;
      found.right += static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin()) == right;
      ++found.asked;
    }
    begin = upto;
  }
  cache.release(pages);
  return {};
}

}  // namespace

Result<std::vector<NeedleFound>> find_needles(Executor& executor, std::span<const Token> text, const NeedleAsk& ask,
                                              const std::function<bool(int64_t passes)>& progress) {
  const int32_t needle = ask.cue + ask.answer, lead = ask.begin >= 0 ? 1 : 0, hay = ask.length - needle - lead;
  if (ask.cue < 1 || ask.answer < 1 || ask.depths < 2 || ask.tries < 1 || hay < 2 * needle)
    return error(Code::invalid, "a stretch of {} tokens is too short for needles of {}: at least {}", ask.length,
                 needle, 3 * needle + lead);
  if (static_cast<int64_t>(text.size()) < 3 * int64_t{ask.length})
    return error(Code::invalid, "the text has {} tokens: needles in stretches of {} need three times as many",
                 text.size(), ask.length);
  std::vector<NeedleFound> found;
  const int32_t last = hay - needle;  // where the needle stands right before the question
  for (int32_t i = 0; i <= ask.depths; ++i) {
    NeedleFound one;
    one.planted = i < ask.depths;
    one.begin = one.planted ? lead + static_cast<int32_t>(int64_t{last} * i / (ask.depths - 1)) : -1;
    one.back = one.planted ? lead + hay - one.begin : 0;
    found.push_back(one);
  }
  int64_t passes = 0;
  const auto places = static_cast<uint64_t>(text.size()) - static_cast<uint64_t>(ask.length);
  for (int32_t at = 0; at < ask.tries; ++at) {
    uint32_t drawn = 0;
    auto below = [&](uint64_t count) {
      const double share = uniform({.seed = ask.seed, .position = static_cast<uint32_t>(at), .draw = drawn++});
      return static_cast<size_t>(share * static_cast<double>(count));
    };
    const size_t hay_at = below(places);
    size_t needle_at = 0;  // not out of the stretch itself
    do {
      needle_at = below(places);
    } while (needle_at + static_cast<size_t>(needle) > hay_at && needle_at < hay_at + static_cast<size_t>(ask.length));
    const std::span<const Token> hidden = text.subspan(needle_at, static_cast<size_t>(needle));
    for (NeedleFound& one : found) {
      std::vector<Token> stretch(text.begin() + static_cast<ptrdiff_t>(hay_at),
                                 text.begin() + static_cast<ptrdiff_t>(hay_at) + hay);
      if (lead > 0) stretch.insert(stretch.begin(), ask.begin);
      if (one.planted) std::copy(hidden.begin(), hidden.end(), stretch.begin() + one.begin);
      stretch.insert(stretch.end(), hidden.begin(), hidden.end());
      TRY_VOID(ask_for(executor, stretch, ask.answer, passes, one));
      if (progress && !progress(++passes)) return error(Code::cancelled, "stopped after {} stretches", passes);
    }
  }
  return found;
}

}  // namespace millrace
