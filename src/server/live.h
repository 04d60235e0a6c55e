// The live view: what the engine does, as JSON a few times a second, for as long as somebody looks. Totals count from
// the start of the engine; percentiles are those of the last half minute, means those since the event before. One
// LiveView per watcher; I/O thread.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "base/json.h"
#include "server/generation.h"
#include "server/http.h"

namespace millrace {

class LiveView {
 public:
  // The state now, given the engine's and its pages'. `floor` as in ServedModel, `token_bytes` of the cache.
  JsonObject look(const EngineSnapshot& snapshot, std::span<const PageState> pages,
                  const std::function<double(const MeanStep&)>& floor, double token_bytes);

 private:
  struct Seen {
    double time = 0;
    Histogram first_token, between_tokens;
  };
  JsonObject means(const EngineSnapshot& snapshot);
  Json limit(const EngineSnapshot& snapshot, const std::function<double(const MeanStep&)>& floor, double token_bytes);

  std::deque<Seen> seen_;  // about one a second, oldest first
  Metrics before_;         // at the last event
  Metrics second_;         // at the last look at the limit
  double second_time_ = -10;
  Json limit_ = nullptr;
};

// The pages as at most `most` letters (u used, s shared, c cached, . free), each for the same number of pages, of which
// it gives the state most have.
struct PageMap {
  int per_cell = 1;
  std::string cells;
};
PageMap page_map(std::span<const PageState> pages, size_t most);

// Quantiles of what `after` counted and `before`, an earlier copy of it, had not.
std::array<double, 3> recent_quantiles(const Histogram& before, const Histogram& after,
                                       std::array<double, 3> fractions);

// Answers with a stream of server-sent events, one object each. With a share, it is of that alone.
// `model` is asked at every event, for another may have taken its place; `open` for what is open.
struct LiveSource {
  std::function<std::shared_ptr<const ServedModel>()> model;
  std::function<JsonArray()> open;
};
void start_live(LiveSource source, std::shared_ptr<const Share> share, std::shared_ptr<Exchange> exchange);

}  // namespace millrace
