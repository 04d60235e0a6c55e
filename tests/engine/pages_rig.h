// A tiny model and somebody who guesses for it and keeps what it needs in the model's pages, with one answer at a time
// in the making: what tests of such drafters share. Whoever derives from it makes the drafter.
#pragma once

#include "cache/kv_cache.h"
#include "engine/draft_rig.h"

namespace millrace {

struct PagesRig {
  Tiny tiny{"llama-gqa-rope3"};
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Drafter> drafter;
  std::unique_ptr<KvCache> cache;
  SequencePages pages;
  RequestId request = 0;

  void make_executor(const BesideLayers& beside, int rows, int pages_of_cache) {
    executor =
        Executor::create(
            *tiny.model, *tiny.backend,
            {.context = 128, .rows = rows, .sequences = 2, .pages = pages_of_cache, .kv = DType::f32, .beside = beside})
            .value();
    cache = std::make_unique<KvCache>(executor->layout(), executor->options().pages, 0, executor->look_back());
  }
  // Computes [begin, end) and shows it to the drafter. How many entries there are then.
  int compute(std::span<const Token> tokens, int begin, int end, bool waits = false) {
    EXPECT_TRUE(cache->reserve(pages, begin, end));
    executor->carry_out(*cache);
    const Chunk chunk{.tokens = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                      .begin = begin,
                      .tables = pages.tables};
    if (executor->tapped()) executor->run({&chunk, 1});  // whoever reads no streams needs no pass
    Observed seen{.request = request,
                  .begin = begin,
                  .rows = end - begin,
                  .streams = executor->tapped(),
                  .tokens = tokens,
                  .tables = pages.tables,
                  .waits = waits};
    drafter->observe({&seen, 1});
    return seen.entries;
  }
  std::vector<Token> guesses(std::span<const Token> tokens, int limit) {
    const Sampler sampler = Sampler::create({.temperature = 0}, executor->vocab()).value();
    std::vector<Token> out;
    DraftAsk ask{.request = request};
    ask.tokens = tokens;
    ask.limit = limit;
    ask.begin = static_cast<int>(tokens.size()) - 1;
    EXPECT_TRUE(cache->reserve(pages, ask.begin, ask.begin + 1 + limit));
    executor->carry_out(*cache);
    ask.tables = pages.tables;
    ask.sampler = &sampler;
    ask.out = &out;
    drafter->propose({&ask, 1});
    return out;
  }
  // Another answer begins. How many tokens it need not compute.
  int begin(std::span<const Token> tokens, const Identity& root = {}) {
    pages = cache->open(++request, root);
    return cache->reuse_prefix(pages, tokens);
  }
  // What the drafter keeps in each of the pages that are full by then and that no window has left; how it lies in one
  // is the backend's matter.
  std::vector<std::string> kept(int tokens) const {
    std::vector<std::string> found;
    for (size_t layer = 0; layer < executor->options().beside.layers.size(); ++layer) {
      const KvView& view = executor->beside(static_cast<int>(layer));
      const auto table = pages.tables[static_cast<size_t>(view.group)].pages();
      const auto bytes = [&](const std::byte* from, DType type, int32_t dim) {
        return std::string(reinterpret_cast<const char*>(from),
                           static_cast<size_t>(view.page_tokens * kv_bytes(type, dim)));
      };
      for (size_t page = 0; page < static_cast<size_t>(tokens / view.page_tokens); ++page) {
        if (table[page] < 0) continue;
        std::string& all = found.emplace_back();
        for (int kv_head = 0; kv_head < view.kv_heads; ++kv_head)
          all += bytes(view.keys(table[page], kv_head), view.form.k, view.k_dim) +
                 bytes(view.values(table[page], kv_head), view.form.v, view.v_dim);
      }
    }
    return found;
  }
};

}  // namespace millrace
