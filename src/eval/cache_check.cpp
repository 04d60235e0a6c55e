#include "eval/cache_check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>

namespace millrace {
namespace {

constexpr int kOthers = 3;
constexpr int32_t kOtherRows = 5;  // tokens another sequence computes in a step, at most

uint64_t hash_bytes(uint64_t hash, const void* data, size_t bytes) {
  const auto* byte = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ byte[i]) * 0x100000001B3;  // FNV-1a
  return hash;
}

constexpr uint64_t kHashStart = 0xCBF29CE484222325;

// A sequence of random tokens that gets in the way.
struct Other {
  SequencePages pages;
  std::vector<Token> tokens;  // of the current step
  int32_t computed = 0;
};

class Crowd {
 public:
  Crowd(Executor& executor, KvCache& cache) : executor_(executor), cache_(cache), random_(7) {
    shuffle_pages();
    for (int i = 0; i < kOthers; ++i) others_.push_back({cache.open(100 + i, {}), {}, 0});
  }

  // The next few tokens of other sequence i.
  Chunk chunk(size_t i) {
    Other& other = others_[i];
    const int32_t count = 1 + static_cast<int32_t>(random_() % kOtherRows);
    if (other.computed + count > executor_.options().context) {
      cache_.release(other.pages);
      other.computed = 0;
    }
    other.tokens.resize(static_cast<size_t>(count));
    for (Token& token : other.tokens) token = static_cast<Token>(random_() % static_cast<uint32_t>(executor_.vocab()));
    CHECK(cache_.reserve(other.pages, other.computed, other.computed + count), "the executor has pages for all");
    Chunk result{
        .tokens = other.tokens, .begin = other.computed, .tables = other.pages.tables, .wanted = i == 0 ? 0 : 1};
    other.computed += count;
    return result;
  }

  void leave() {
    for (Other& other : others_) cache_.release(other.pages);
  }

 private:
  // Takes every page and gives them back in a random order, which is then the order they are taken in.
  void shuffle_pages() {
    std::vector<SequencePages> holders;
    const int32_t page = executor_.options().page_tokens;
    while (true) {
      holders.push_back(cache_.open(1000 + static_cast<int64_t>(holders.size()), {}));
      if (!cache_.reserve(holders.back(), 0, page)) break;
    }
    std::shuffle(holders.begin(), holders.end(), random_);
    for (SequencePages& holder : holders) cache_.release(holder);
  }

  Executor& executor_;
  KvCache& cache_;
  std::mt19937 random_;
  std::vector<Other> others_;
};

void flip_bit(const Store& store, std::byte* value, int64_t bytes) {
  std::array<std::byte, 8> bits;
  const std::span<std::byte> number = std::span(bits).first(static_cast<size_t>(bytes));
  store.read(value, number);
  number.back() ^= std::byte{0x40};  // little-endian: the exponent's highest bit, so that no rounding hides it
  store.write(number, value);
}

// Of the first number of the first state there is.
void flip_state_bit(Executor& executor, const SequencePages& pages) {
  for (int layer = 0; layer < static_cast<int>(executor.planned().shapes.size()); ++layer) {
    const StateView& state = executor.store().view(layer).state;
    if (state.base == nullptr) continue;
    const PageId page = pages.tables[static_cast<size_t>(state.group)][0];
    return flip_bit(executor.store(), state.base + page * state.page_stride + state.offsets[state.numbers[1] > 0], 4);
  }
}

// Flips bits of values in the page that has `position`, one for each of its tokens and heads, or else one of a state. A
// backend may keep a page's tokens in an order of its own, so one flip might lie in what is still to be written.
void flip_stored_bits(Executor& executor, const SequencePages& pages, int32_t position) {
  bool flipped = false;
  for (int layer = 0; layer < static_cast<int>(executor.planned().shapes.size()); ++layer) {
    const KvView& view = executor.store().view(layer);
    if (view.base == nullptr) continue;
    const PageSlot slot = pages.tables[static_cast<size_t>(view.group)].at(position);
    const bool latent = view.v_dim == 0;  // then values are part of keys
    const DType type = latent ? view.form.k : view.form.v;
    const int64_t value_bytes = format(type).group == 1 ? format(type).group_bytes : 2;  // or a group's factor
    const int64_t row = kv_codes_at(type, latent ? view.k_dim : view.v_dim, 1);
    for (int head = 0; head < view.kv_heads; ++head) {
      const std::byte* part = latent ? view.keys(slot.page, head) : view.values(slot.page, head);
      for (int token = 0; token < view.page_tokens; ++token)
        flip_bit(executor.store(), const_cast<std::byte*>(part) + token * row, value_bytes);
    }
    flipped = true;
  }
  if (!flipped) flip_state_bit(executor, pages);
}

}  // namespace

std::vector<CacheWay> cache_ways(int32_t tokens, int32_t page_tokens, bool plant) {
  std::vector<CacheWay> ways;
  for (bool crowded : {false, true}) {
    const std::string where = crowded ? fmt::format(", beside {} others", kOthers) : "";
    ways.push_back({"one pass" + where, 0, crowded});
    for (int32_t chunk : {1, 7, page_tokens, page_tokens + 1}) {
      if (chunk >= tokens) continue;
      std::string name = chunk == 1 ? "token by token" : fmt::format("chunks of {}", chunk);
      ways.push_back({name + where, chunk, crowded});
    }
  }
  if (plant) ways.push_back({"token by token, stored bits flipped", 1, false, true});
  return ways;
}

ExecutorOptions cache_check_options(int32_t tokens, const KvForm& kv, int32_t page_tokens) {
  ExecutorOptions options;
  options.context = std::max(tokens, 2 * kOtherRows);
  options.rows = tokens + kOthers * kOtherRows;
  options.sequences = kOthers + 1;
  options.wanted = options.rows;
  options.kv = kv;
  options.page_tokens = page_tokens;
  return options;
}

CacheOutcome run_way(Executor& executor, std::span<const Token> prompt, const CacheWay& way) {
  KvCache cache(executor.layout(), executor.options().pages, 0);
  std::optional<Crowd> crowd;
  if (way.crowded) crowd.emplace(executor, cache);
  SequencePages pages = cache.open(0, {});
  CacheOutcome outcome;
  const int32_t total = static_cast<int32_t>(prompt.size());
  std::vector<Chunk> chunks;
  for (int32_t computed = 0; computed < total;) {
    const int32_t count = way.chunk == 0 ? total : std::min(way.chunk, total - computed);
    chunks.clear();
    // Ours stands in the middle, so that rows lie before and after it.
    for (size_t i = 0; crowd && i < kOthers; ++i) chunks.push_back(crowd->chunk(i));
    CHECK(cache.reserve(pages, computed, computed + count), "the executor has pages for all");
    const size_t place = std::min<size_t>(chunks.size(), 1);
    chunks.insert(chunks.begin() + static_cast<ptrdiff_t>(place),
                  {.tokens = prompt.subspan(static_cast<size_t>(computed), static_cast<size_t>(count)),
                   .begin = computed,
                   .tables = pages.tables,
                   .wanted = count});
    if (way.planted && computed >= total / 2 && computed - count < total / 2)
      flip_stored_bits(executor, pages, computed - 1);
    executor.carry_out(cache);
    Tensor logits = executor.run(chunks);
    int64_t row = 0;
    for (size_t i = 0; i < place; ++i) row += chunks[i].wanted;
    for (int32_t i = 0; i < count; ++i, ++row) {
      outcome.rows.push_back(hash_bytes(kHashStart, logits.row(row), static_cast<size_t>(logits.cols) * sizeof(float)));
    }
    computed += count;
  }
  cache.release(pages);
  if (crowd) crowd->leave();
  outcome.hash = hash_bytes(kHashStart, outcome.rows.data(), outcome.rows.size() * sizeof(uint64_t));
  return outcome;
}

int32_t first_difference(const CacheOutcome& expected, const CacheOutcome& found) {
  for (size_t i = 0; i < expected.rows.size(); ++i) {
    if (i >= found.rows.size() || expected.rows[i] != found.rows[i]) return static_cast<int32_t>(i);
  }
  return found.rows.size() == expected.rows.size() ? -1 : static_cast<int32_t>(expected.rows.size());
}

}  // namespace millrace
