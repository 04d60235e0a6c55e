#include "server/live.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr double kPeriod = 0.25;     // seconds from event to event
constexpr double kWindow = 30;       // seconds that percentiles look back
constexpr double kLimitPeriod = 1;   // seconds from one look at the limit to the next
constexpr size_t kMostCells = 4096;  // of the map
constexpr const char* kLetters = ".usc";

class LiveJob : public Job {
 public:
  LiveJob(LiveSource source, std::shared_ptr<const Share> share)
      : source_(std::move(source)), share_(std::move(share)) {}
  double period() const override { return kPeriod; }
  Pull pull(std::string& out) override {
    const auto model = source_.model();
    const double token_bytes = model->engine->facts().token_bytes;
    // Steps and pages are everybody's: whoever may see only its own share is not shown them.
    JsonObject json =
        share_ ? view_.look(share_->snapshot(), {}, {}, token_bytes)
               : view_.look(model->engine->snapshot(), model->engine->watch_pages(), model->floor, token_bytes);
    json["scope"] = share_ ? "tenant" : "all";
    json["model"] = model->name;
    json["fingerprint"] = model->fingerprint;
    json["open"] = source_.open();
    out += "data: " + to_text(json) + "\n\n";
    return Pull::more;
  }
  void gone() override {}

 private:
  const LiveSource source_;
  const std::shared_ptr<const Share> share_;
  LiveView view_;
};

JsonObject spread(const Histogram& before, const Histogram& after) {
  const auto [p50, p95, p99] = recent_quantiles(before, after, {0.5, 0.95, 0.99});
  return {{"p50", 1000 * p50}, {"p95", 1000 * p95}, {"p99", 1000 * p99}, {"count", after.count() - before.count()}};
}

// Tokens written so far: a request's are added up when it ends, but the times between them at once.
int64_t written(const Metrics& m) { return m.between_tokens.count() + m.first_token.count(); }

JsonObject pages_json(const EngineSnapshot& snapshot, std::span<const PageState> pages) {
  auto count = [&](PageState state) { return std::count(pages.begin(), pages.end(), state); };
  PageMap map = page_map(pages, kMostCells);
  return {{"total", snapshot.pages},
          {"used", count(PageState::used)},
          {"shared", count(PageState::shared)},
          {"cached", count(PageState::cached)},
          {"free", pages.empty() ? snapshot.pages : count(PageState::free)},
          {"second_used", snapshot.metrics.second_pages_used},
          {"per_cell", map.per_cell},
          {"map", std::move(map.cells)}};
}

}  // namespace

std::array<double, 3> recent_quantiles(const Histogram& before, const Histogram& after,
                                       std::array<double, 3> fractions) {
  std::array<double, 3> found = {};
  const int64_t count = after.count() - before.count();
  if (count <= 0) return found;
  for (size_t i = 0; i < fractions.size(); ++i) {
    const auto rank =
        std::clamp<int64_t>(static_cast<int64_t>(std::ceil(fractions[i] * static_cast<double>(count))), 1, count);
    int64_t seen = 0;
    for (int bucket = 0; bucket < Histogram::kBuckets && seen < rank; ++bucket) {
      seen += after.buckets()[static_cast<size_t>(bucket)] - before.buckets()[static_cast<size_t>(bucket)];
      found[i] = bucket == 0 ? Histogram::kSmallest
                             : Histogram::upper_bound(bucket) * std::exp2(-0.5 / Histogram::kPerDoubling);
    }
  }
  return found;
}

PageMap page_map(std::span<const PageState> pages, size_t most) {
  PageMap map;
  const size_t each = std::max<size_t>(1, (pages.size() + most - 1) / most);
  map.per_cell = static_cast<int>(each);
  for (size_t at = 0; at < pages.size(); at += each) {
    std::array<size_t, 4> counts = {};
    for (size_t i = at; i < std::min(at + each, pages.size()); ++i) ++counts[static_cast<size_t>(pages[i])];
    map.cells += kLetters[std::max_element(counts.begin(), counts.end()) - counts.begin()];
  }
  return map;
}

JsonObject LiveView::means(const EngineSnapshot& snapshot) {
  const Metrics& m = snapshot.metrics;
  const auto steps = static_cast<double>(m.steps - before_.steps);
  auto mean = [&](const Histogram& after, const Histogram& before) {
    return steps > 0 ? (after.sum() - before.sum()) / steps : 0;
  };
  return {{"tokens", mean(m.step_tokens, before_.step_tokens)},
          {"sequences", mean(m.step_sequences, before_.step_sequences)},
          {"ms", 1000 * mean(m.step_seconds, before_.step_seconds)}};
}

// The least time for a step as they were on average, over the time they took. Mixed steps make it look lower than it
// is, never higher: the least time of a mean is below the mean of least times.
Json LiveView::limit(const EngineSnapshot& snapshot, const std::function<double(const MeanStep&)>& floor,
                     double token_bytes) {
  if (!floor || snapshot.now - second_time_ < kLimitPeriod) return limit_;
  const Metrics& m = snapshot.metrics;
  const auto steps = static_cast<double>(m.steps - second_.steps);
  const double seconds = m.step_seconds.sum() - second_.step_seconds.sum();
  const bool first = second_time_ < 0;
  limit_ = nullptr;
  if (steps > 0 && seconds > 0 && !first) {
    MeanStep step = {.sequences = (m.step_sequences.sum() - second_.step_sequences.sum()) / steps,
                     .tokens = (m.step_tokens.sum() - second_.step_tokens.sum()) / steps};
    const double held = static_cast<double>(m.kv_used_bytes) / std::max(1, m.running);
    step.context = token_bytes > 0 ? held / token_bytes : 0;
    limit_ = floor(step) * steps / seconds;
  }
  second_ = m;
  second_time_ = snapshot.now;
  return limit_;
}

JsonObject LiveView::look(const EngineSnapshot& snapshot, std::span<const PageState> pages,
                          const std::function<double(const MeanStep&)>& floor, double token_bytes) {
  const Metrics& m = snapshot.metrics;
  if (seen_.empty() || snapshot.now - seen_.back().time >= 1) {
    seen_.push_back({snapshot.now, m.first_token, m.between_tokens});
  }
  while (seen_.size() > 1 && snapshot.now - seen_[1].time >= kWindow) seen_.pop_front();
  JsonObject json = {{"now", snapshot.now},
                     {"running", m.running},
                     {"waiting", m.waiting},
                     {"steps", m.steps},
                     {"tokens_in", m.tokens_in},
                     {"tokens_out", written(m)},
                     {"computed_tokens", m.computed_tokens},
                     {"cached_tokens", m.cached_tokens},
                     {"finished", m.finished},
                     {"refused", m.refused},
                     {"cancelled", m.cancelled},
                     {"failed", m.failed},
                     {"preemptions", m.preemptions},
                     {"drafted_tokens", m.drafted_tokens},
                     {"accepted_drafts", m.accepted_drafts},
                     {"draft_windows", m.draft_windows},
                     {"generated_tokens", m.generated_tokens},
                     {"bound", JsonObject{{"answers", m.bound_answers}, {"tokens", m.bound_tokens}}},
                     {"prefix", JsonObject{{"lookups", m.prefix_lookups},
                                           {"hits", m.prefix_hits},
                                           {"asked_tokens", m.prefix_asked_tokens},
                                           {"found_tokens", m.prefix_found_tokens},
                                           {"second_tokens", m.prefix_second_tokens},
                                           {"store_tokens", m.prefix_store_tokens}}},
                     {"store", JsonObject{{"asked", snapshot.tier.asked},
                                          {"skipped", snapshot.tier.skipped},
                                          {"found", snapshot.tier.found},
                                          {"stored", snapshot.tier.stored},
                                          {"refused", snapshot.tier.refused},
                                          {"failed", snapshot.tier.failed}}},
                     {"step", means(snapshot)},
                     {"ttft_ms", spread(seen_.front().first_token, m.first_token)},
                     {"itl_ms", spread(seen_.front().between_tokens, m.between_tokens)},
                     {"limit", limit(snapshot, floor, token_bytes)},
                     {"limit_known", static_cast<bool>(floor)},
                     {"pages", pages_json(snapshot, pages)},
                     {"process", snapshot.process},
                     {"process_restarts", snapshot.restarts},
                     {"kv_bytes", JsonObject{{"reserved", m.kv_reserved_bytes}, {"used", m.kv_used_bytes}}}};
  before_ = m;
  return json;
}

void start_live(LiveSource source, std::shared_ptr<const Share> share, std::shared_ptr<Exchange> exchange) {
  exchange->attach(std::make_shared<LiveJob>(std::move(source), std::move(share)));
  exchange->stream({.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}});
}

}  // namespace millrace
