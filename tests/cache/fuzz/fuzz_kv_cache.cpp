// Any order of calls that a scheduler may make: after each, every count is what the holders say. Bytes choose the
// layout, the pools, and then what happens to which of a few sequences.
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "cache/kv_cache.h"

namespace {

using namespace millrace;

struct Input {
  const uint8_t* data;
  size_t size;
  int take(int limit) {
    if (size == 0) return 0;
    --size;
    return *data++ % limit;
  }
};

CacheLayout layout_of(Input& input) {
  CacheSpec paged{CacheKind::paged, {64, 64}, 0}, windowed{CacheKind::windowed, {64, 64}, 1 + input.take(12)};
  int page_tokens = 1 << input.take(3);
  CacheSpec recurrent{CacheKind::recurrent, {0, 128 * page_tokens}, 0};
  std::array<std::vector<CacheSpec>, 4> choices = {
      {{paged}, {paged, windowed}, {paged, recurrent}, {windowed, recurrent, paged}}};
  return plan_layout(choices[static_cast<size_t>(input.take(4))],
                     {.page_tokens = page_tokens, .snapshot_tokens = 1 + input.take(8)})
      .value();
}

struct Running {
  SequencePages pages;
  std::vector<Token> tokens;
  int computed = 0;
};

class World {
 public:
  explicit World(Input input) : input_(input), cache_(layout_of(input_), 4 + input_.take(40), input_.take(24)) {
    cache_.set_costs({1, 0.1, input_.take(2) * 100.0});
  }

  void run() {
    while (input_.size > 0) {
      Running& one = running_[static_cast<size_t>(input_.take(5))];
      act(one, input_.take(8));
      std::vector<KvCache::Holder> holders;
      for (const Running& each : running_)
        if (!each.pages.empty()) holders.push_back({&each.pages, each.computed});
      auto checked = cache_.check(holders);
      CHECK(checked.ok(), "{}", checked.error().message);
    }
    for (Running& each : running_) cache_.release(each.pages);
    settle(false);
    while (cache_.tree().evict()) continue;
    CHECK(cache_.pool().used() == 0, "{} pages are lost", cache_.pool().used());
  }

 private:
  void act(Running& one, int what) {
    if (one.pages.tables.empty()) what = 0;
    switch (what) {
      case 0:
        return start(one);
      case 1:
        return grow(one, 1 + input_.take(9), false);
      case 2:
        return grow(one, 1 + input_.take(5), true);
      case 3:
        return cache_.publish(one.pages, one.tokens, one.computed);
      case 4:
        return fork(one);
      case 5:
        cache_.retire(one.pages, one.tokens, one.computed);
        one.computed = 0;
        return;
      case 6:
        cache_.release(one.pages);
        one.computed = 0;
        return;
      case 7:
        return settle(input_.take(4) == 0);
    }
  }

  void start(Running& one) {
    if (!one.pages.tables.empty()) cache_.release(one.pages);
    Identity root;
    root.bytes[0] = static_cast<uint8_t>(input_.take(2));
    one.pages = cache_.open(&one - running_.data(), root);
    one.tokens.resize(static_cast<size_t>(1 + input_.take(40)));
    for (size_t index = 0; index < one.tokens.size(); ++index) one.tokens[index] = index % 5 == 4 ? input_.take(2) : 0;
    one.computed = cache_.reuse_prefix(one.pages, one.tokens);
    CHECK(one.computed < static_cast<int>(one.tokens.size()), "nothing is left to compute");
    settle(false);
  }

  // A step, of which the last tokens may turn out to be wrong guesses.
  void grow(Running& one, int count, bool drafts) {
    int end = cache_.step_end(one.computed, one.computed + count);
    while (static_cast<int>(one.tokens.size()) < end) one.tokens.push_back(0);
    if (!cache_.reserve(one.pages, one.computed, end, drafts)) return;
    if (drafts) {
      int kept = one.computed + 1 + input_.take(std::max(1, end - one.computed));
      end = std::min(end, kept);
      end = cache_.rollback(one.pages, end);
      CHECK(end >= one.computed, "rolled back too far");
    }
    one.computed = end;
  }

  void fork(Running& one) {
    Running& other = running_[static_cast<size_t>(input_.take(5))];
    if (&other == &one || one.computed == 0) return;
    if (!other.pages.tables.empty()) cache_.release(other.pages);
    other.pages = cache_.open(&other - running_.data(), one.pages.root);
    other.tokens = one.tokens;
    other.computed = cache_.fork(one.pages, other.pages, 1 + input_.take(one.computed));
  }

  void settle(bool fails) {
    std::vector<PageMove> moves = cache_.take_moves();
    std::vector<uint8_t> failed(moves.size(), fails);
    for (const PageMove& move : moves) {
      if (!fails || move.kind != PageMove::Kind::in) continue;
      Running& owner = running_[static_cast<size_t>(move.owner)];
      cache_.release(owner.pages);
      owner.computed = 0;
    }
    cache_.settle(moves, failed);
    cache_.take_snapshots();
  }

  Input input_;
  KvCache cache_;
  std::array<Running, 5> running_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  World({data, size}).run();
  return 0;
}
