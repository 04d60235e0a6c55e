// How a row of logits is shortlisted (backend/shortlist.h), written once for the host and for devices. A Group is
// kThreads threads that work in turns: each(f) calls f(thread, state) for all of them, then all of them see what each
// has written; reductions over them give everyone the same. On a device a Group is a thread group and a state is one
// thread's registers; on the host it is a loop. Parts of a row come first, each by a group of its own (shortlist_part),
// then one group joins them (shortlist_row). Which tokens come out does not depend on the order threads run in.
//
// Thresholds are found by halving the interval between two floats, as integers in the floats' order.
#pragma once

#include <cfloat>

#include "backend/shortlist.h"
#include "backend/shortlist_math.h"
#include "base/both.h"

namespace millrace::shortlisting {

inline constexpr int kThreads = 256;
inline constexpr int kEach = kShortlistPart / kThreads;  // numbers a thread holds
inline constexpr int kQuads = kEach / 4;
inline constexpr int kRaceEach = 2;  // tokens a part lists of a race
static_assert(kShortlistParts * kRaceEach <= kThreads && kShortlistListed == kThreads * kEach);

// What a part found out.
struct PartFindings {
  double sum;   // of weights
  float floor;  // every token at or above it is listed
  float key;    // of a race: the least
  int32_t count;
  int32_t fits;
};

struct State {
  float values[kEach];
  uint32_t weights[kEach];  // of shortlist_row: in units of 2^-30
  float most;               // of values
  double sum;
  float key, second;     // of a race: the least and the next
  ShortlistToken token;  // with that key
};

MILLRACE_BOTH int32_t parts_of(int32_t cols) { return (cols + kShortlistPart - 1) / kShortlistPart; }
// How many tokens a part may list.
MILLRACE_BOTH int32_t listed_by_part(int32_t parts) {
  return kShortlistListed / parts < kShortlistTokens ? kShortlistListed / parts : kShortlistTokens;
}

// A row is dealt to its parts in stretches of 128 logits, one at a time: likely tokens often have neighbouring numbers.
MILLRACE_BOTH int32_t place(int part, int parts, int thread, int quad) {
  return ((quad * (kThreads / 32) + thread / 32) * parts + part) * 128 + thread % 32 * 4;
}

struct Quad {
  float values[4];
};
// Four logits; -infinity behind the row's end.
MILLRACE_BOTH Quad quad_at(const float* row, int32_t cols, int32_t at) {
  Quad quad;
#ifdef __CUDA_ARCH__
  if (at + 4 <= cols && reinterpret_cast<uintptr_t>(row) % 16 == 0) {
    const float4 four = *reinterpret_cast<const float4*>(row + at);
    quad.values[0] = four.x, quad.values[1] = four.y, quad.values[2] = four.z, quad.values[3] = four.w;
    return quad;
  }
#endif
  for (int i = 0; i < 4; ++i) quad.values[i] = at + i < cols ? row[at + i] : -HUGE_VALF;
  return quad;
}

// Integers in the order of floats (no NaN).
MILLRACE_BOTH int32_t ordered(float value) {
  const int32_t bits = static_cast<int32_t>(bits_of(value));
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}
MILLRACE_BOTH float unordered(int32_t order) {
  return float_of(static_cast<uint32_t>(order ^ ((order >> 31) & 0x7FFFFFFF)));
}
MILLRACE_BOTH int32_t halfway(int32_t low, int32_t high) {
  return static_cast<int32_t>((static_cast<int64_t>(low) + high) >> 1);
}

MILLRACE_BOTH int32_t count_from(const State& state, float bar) {
  int32_t count = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int i = 0; i < kEach; ++i) count += state.values[i] >= bar ? 1 : 0;
  return count;
}

// The lowest logit that can be wanted.
MILLRACE_BOTH float bar_of(const ShortlistAsk& ask, float largest) {
  const float bar = largest - ask.depth;
  return bar > -FLT_MAX ? bar : -FLT_MAX;
}

// Takes four tokens into account, those of them that may arrive by the bar.
MILLRACE_BOTH void race_quad(const ShortlistAsk& ask, const float* row, int32_t cols, int32_t at, float largest,
                             float bar, State& state) {
  const Quad four = quad_at(row, cols, at);
  const PhiloxWords<4> words = philox_words<4>(ask.seed, ask.choice, ask.position, static_cast<uint32_t>(at));
  float scaled[4];
  bool may[4];
  for (int i = 0; i < 4; ++i) {
    scaled[i] = (four.values[i] - largest) * ask.scale;
    may[i] = race_may_reach(bar, words.high[i], scaled[i]);
  }
  if (!(may[0] || may[1] || may[2] || may[3])) return;
  for (int i = 0; i < 4; ++i) {
    const float key = may[i] ? race_key(words.high[i], words.low[i], scaled[i]) : HUGE_VALF;
    if (key < state.key) {
      state.second = state.key;
      state.key = key;
      state.token = {at + i, four.values[i]};
    } else if (key < state.second) {
      state.second = key;
    }
  }
}

template <class Group>
MILLRACE_BOTH void race_part(Group& group, const ShortlistAsk& ask, const float* row, int32_t cols, int part, int parts,
                             int32_t best, PartFindings& out, ShortlistToken* tokens) {
  const float largest = row[best];
  // The likeliest token's own arrival is a bar for all others; then that of the first quarter of this part.
  group.each([&](int thread, State& state) {
    state.key = HUGE_VALF;
    if (thread != 0) return;
    const PhiloxWords<4> words = philox_words<4>(ask.seed, ask.choice, ask.position, static_cast<uint32_t>(best));
    state.key = race_key(words.high[0], words.low[0], 0);
  });
  float by = group.least([](const State& state) { return state.key; }) + kRaceMargin;
  group.each([&](int, State& state) {
    state.key = state.second = HUGE_VALF;
    state.token = {-1, 0};
  });
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
  for (int first = 0, end = 1; first < kQuads; first = end, end = kQuads) {
    group.each([&](int thread, State& state) {
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
      for (int quad = first; quad < end; ++quad) {
        const int32_t at = place(part, parts, thread, quad);
        if (at < cols) race_quad(ask, row, cols, at, largest, by, state);
      }
    });
    const float so_far = group.least([](const State& state) { return state.key; }) + kRaceMargin;
    by = so_far < by ? so_far : by;
  }
  const float least = group.least([](const State& state) { return state.key; });
  const float bar = least + kRaceMargin;
  const int32_t close = group.sum([&](const State& state) {
    return (state.key <= bar && state.key < HUGE_VALF ? 1 : 0) + (state.second <= bar && least < HUGE_VALF ? 256 : 0);
  });
  group.each([&](int thread, State& state) {
    if (close <= kRaceEach && state.key <= bar && state.key < HUGE_VALF) tokens[group.next()] = state.token;
    if (thread == 0) out = {0, 0, least, close <= kRaceEach ? close : 0, close <= kRaceEach ? 1 : 0};
  });
}

// A bar with at most `room` tokens of the part at or above it, and enough of them if there are that many.
template <class Group>
MILLRACE_BOTH float part_bar(Group& group, float lowest, int32_t room) {
  auto tokens_from = [&](float bar) { return group.sum([&](const State& state) { return count_from(state, bar); }); };
  if (tokens_from(lowest) <= room) return lowest;
  int32_t low = ordered(lowest), high = ordered(group.most([](const State&state) { return state.most; })) + 1;
  // Threads by their largest number are much quicker to count than numbers, and nearly as good.
  const int32_t enough = room / 2 < kThreads / 2 ? room / 2 : kThreads / 2;
  int32_t guess_low = low, guess_high = high;
  while (guess_high - static_cast<int64_t>(guess_low) > 1) {
    const int32_t middle = halfway(guess_low, guess_high);
    const float bar = unordered(middle);
    const int32_t threads = group.threads([&](const State& state) { return state.most >= bar; });
    (threads > enough ? guess_low : guess_high) = middle;
    if (threads <= enough && threads >= enough / 2) break;
  }
  if (guess_high < high && tokens_from(unordered(guess_high)) <= room) return unordered(guess_high);
  if (guess_high < high) low = guess_high;
  while (high - static_cast<int64_t>(low) > 1) {
    const int32_t middle = halfway(low, high), count = tokens_from(unordered(middle));
    (count > room ? low : high) = middle;
    if (count <= room && count >= room / 2) break;
  }
  return unordered(high);
}

template <class Group>
MILLRACE_BOTH void list_part(Group& group, const ShortlistAsk& ask, const float* row, int32_t cols, int part, int parts,
                             float largest, PartFindings& out, ShortlistToken* tokens) {
  const bool by_mass = ask.count == 0 && ask.mass < 1;
  group.each([&](int thread, State& state) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int quad = 0; quad < kQuads; ++quad) {
      const Quad four = quad_at(row, cols, place(part, parts, thread, quad));
      for (int i = 0; i < 4; ++i) state.values[quad * 4 + i] = four.values[i];
    }
    state.most = -HUGE_VALF;
    state.sum = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int i = 0; i < kEach; ++i) {
      state.most = state.values[i] > state.most ? state.values[i] : state.most;
      if (by_mass) state.sum += static_cast<double>(exp_below(state.values[i] - largest));
    }
  });
  const double sum = by_mass ? group.total([](const State& state) { return state.sum; }) : 0;
  const float bar = part_bar(group, bar_of(ask, largest), listed_by_part(parts));
  group.each([&](int thread, State& state) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int i = 0; i < kEach; ++i) {
      if (state.values[i] >= bar) tokens[group.next()] = {place(part, parts, thread, i / 4) + i % 4, state.values[i]};
    }
  });
  const int32_t count = group.sum([&](const State& state) { return count_from(state, bar); });
  group.each([&](int thread, State&) {
    if (thread == 0) out = {sum, bar, 0, count, 1};
  });
}

// What part `part` of a row has to say about it. `best` is where the row's largest logit is, a finite one. tokens:
// listed_by_part() of room.
template <class Group>
MILLRACE_BOTH void shortlist_part(Group& group, const ShortlistAsk& ask, const float* row, int32_t cols, int part,
                                  int32_t best, PartFindings& out, ShortlistToken* tokens) {
  const int parts = parts_of(cols);
  if (ask.kind == ShortlistKind::race) race_part(group, ask, row, cols, part, parts, best, out, tokens);
  if (ask.kind == ShortlistKind::list) list_part(group, ask, row, cols, part, parts, row[best], out, tokens);
}

template <class Group>
MILLRACE_BOTH void race_row(Group& group, const ShortlistAsk& ask, const PartFindings* of, const ShortlistToken* listed,
                            int parts, float largest, Shortlisted& out, ShortlistToken* tokens) {
  const int32_t room = listed_by_part(parts);
  group.each([&](int thread, State& state) {
    const int part = thread / kRaceEach, slot = thread % kRaceEach;
    state.key = state.second = HUGE_VALF;
    if (part >= parts) return;
    if (slot == 0 && of[part].fits == 0) state.second = of[part].key;
    if (slot >= of[part].count) return;
    state.token = listed[part * room + slot];
    const PhiloxWords<4> words =
        philox_words<4>(ask.seed, ask.choice, ask.position, static_cast<uint32_t>(state.token.id));
    state.key = race_key(words.high[0], words.low[0], (state.token.logit - largest) * ask.scale);
  });
  const float listed_least = group.least([](const State& state) { return state.key; });
  const float lost_least = group.least([](const State& state) { return state.second; });
  const float bar = listed_least + kRaceMargin;
  // Also false if nothing is listed.
  const bool fits = listed_least < HUGE_VALF && lost_least > bar;
  const int32_t count = group.sum([&](const State& state) { return fits && state.key <= bar ? 1 : 0; });
  group.each([&](int thread, State& state) {
    if (fits && state.key <= bar) tokens[group.next()] = state.token;
    if (thread == 0) out.fits = fits, out.count = count;
  });
}

// The highest bar that leaves enough, or nearly; `floor` if even that does not.
template <class Group>
MILLRACE_BOTH float row_bar(Group& group, const ShortlistAsk& ask, float floor, float largest, uint64_t wanted) {
  constexpr int32_t kSlack = 8;  // tokens more than needed that are not worth another round
  auto have = [&](float bar) {
    return group.wide_sum([&](const State& state) {
      uint64_t sum = 0;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
      for (int i = 0; i < kEach; ++i) {
        if (state.values[i] >= bar) sum += ask.count > 0 ? uint64_t{1} : uint64_t{state.weights[i]};
      }
      return sum;
    });
  };
  auto tokens_from = [&](float bar) { return group.sum([&](const State& state) { return count_from(state, bar); }); };
  if (have(floor) < wanted) return floor;
  int32_t low = ordered(floor), high = ordered(largest) + 1;
  int32_t tokens_low = tokens_from(floor), tokens_high = 0;
  while (high - static_cast<int64_t>(low) > 1 && tokens_low - tokens_high > kSlack) {
    const int32_t middle = halfway(low, high), tokens = tokens_from(unordered(middle));
    if (have(unordered(middle)) >= wanted) {
      low = middle, tokens_low = tokens;
    } else {
      high = middle, tokens_high = tokens;
    }
  }
  return unordered(low);
}

template <class Group>
MILLRACE_BOTH void list_row(Group& group, const ShortlistAsk& ask, const PartFindings* of, const ShortlistToken* listed,
                            int parts, float largest, Shortlisted& out, ShortlistToken* tokens) {
  const int32_t room = listed_by_part(parts);
  group.each([&](int thread, State& state) {
    state.most = thread < parts ? of[thread].floor : -FLT_MAX;
    state.sum = thread < parts ? of[thread].sum : 0;
  });
  const float floor = group.most([](const State& state) { return state.most; });
  const double sum = group.total([](const State& state) { return state.sum; });
  group.each([&](int thread, State& state) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int i = 0; i < kEach; ++i) {
      const int entry = thread + i * kThreads, part = entry / room, slot = entry - part * room;
      const bool is = part < parts && slot < of[part].count;
      const float value = is ? listed[entry].logit : -HUGE_VALF;
      state.values[i] = value;
      state.weights[i] = static_cast<uint32_t>(exp_below(value - largest) * 0x1p30f);
    }
  });
  // Weights are a little too small by now, and the sum is the host's only to a bound: some more are wanted.
  const double mass = (static_cast<double>(ask.mass) * sum * 1.00001 + 1e-5) * 0x1p30;
  const bool bounded = ask.count > 0 || ask.mass < 1;
  const uint64_t wanted = ask.count > 0 ? static_cast<uint64_t>(ask.count) : static_cast<uint64_t>(mass);
  const float bar = bounded ? row_bar(group, ask, floor, largest, wanted) : floor;
  const int32_t count = group.sum([&](const State& state) { return count_from(state, bar); });
  const bool fits = count > 0 && count <= kShortlistTokens;
  group.each([&](int thread, State& state) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int i = 0; i < kEach; ++i) {
      if (fits && state.values[i] >= bar) tokens[group.next()] = listed[thread + i * kThreads];
    }
    if (thread == 0) out.fits = fits, out.count = fits ? count : 0, out.floor = bar, out.sum = sum;
  });
}

// Joins what the parts said: fits, floor, sum, count and tokens (kShortlistTokens of room) of a row.
template <class Group>
MILLRACE_BOTH void shortlist_row(Group& group, const ShortlistAsk& ask, const PartFindings* of,
                                 const ShortlistToken* listed, int32_t cols, float largest, Shortlisted& out,
                                 ShortlistToken* tokens) {
  const int parts = parts_of(cols);
  if (ask.kind == ShortlistKind::race) race_row(group, ask, of, listed, parts, largest, out, tokens);
  if (ask.kind == ShortlistKind::list) list_row(group, ask, of, listed, parts, largest, out, tokens);
}

}  // namespace millrace::shortlisting
