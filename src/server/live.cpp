#include "server/live.h"

namespace millrace {
namespace {

constexpr double kPeriod = 0.25;  // seconds

class Live : public Job {
 public:
  explicit Live(const ServedModel& model) : model_(model) {}
  double period() const override { return kPeriod; }
  Pull pull(std::string& out) override {
    out += "data: " + to_text(live_json(model_.engine->snapshot(), model_.engine->options())) + "\n\n";
    return Pull::more;
  }
  void gone() override {}

 private:
  const ServedModel& model_;
};

JsonObject spread(const Histogram& histogram) {
  return {{"count", histogram.count()},
          {"mean", histogram.mean()},
          {"p50", histogram.quantile(0.5)},
          {"p95", histogram.quantile(0.95)},
          {"p99", histogram.quantile(0.99)}};
}

}  // namespace

Json live_json(const Engine::Snapshot& snapshot, const EngineOptions& options) {
  const Metrics& m = snapshot.metrics;
  return JsonObject{{"now", snapshot.now},
                    {"last_progress", snapshot.last_progress},
                    {"running", m.running},
                    {"waiting", m.waiting},
                    {"requests", JsonObject{{"submitted", m.submitted},
                                            {"finished", m.finished},
                                            {"cancelled", m.cancelled},
                                            {"refused", m.refused},
                                            {"failed", m.failed}}},
                    {"tokens", JsonObject{{"in", m.tokens_in}, {"out", m.tokens_out}, {"cached", m.cached_tokens}}},
                    {"steps", m.steps},
                    {"computed_tokens", m.computed_tokens},
                    {"preemptions", m.preemptions},
                    {"prefix", JsonObject{{"lookups", m.prefix_lookups}, {"hits", m.prefix_hits}}},
                    {"step_seconds", spread(m.step_seconds)},
                    {"step_tokens", spread(m.step_tokens)},
                    {"step_sequences", spread(m.step_sequences)},
                    {"ttft_seconds", spread(m.first_token)},
                    {"inter_token_seconds", spread(m.between_tokens)},
                    {"queue_seconds", spread(m.queue)},
                    {"end_to_end_seconds", spread(m.end_to_end)},
                    {"pages", JsonObject{{"total", snapshot.pages},
                                         {"used", m.pages_used},
                                         {"free", m.pages_free},
                                         {"cached", m.pages_cached},
                                         {"second", m.second_pages_used},
                                         {"tokens_each", options.executor.page_tokens}}},
                    {"limits", JsonObject{{"sequences", options.limits.max_sequences},
                                          {"waiting", options.limits.max_waiting},
                                          {"step_tokens", options.limits.step_tokens},
                                          {"context", options.limits.context}}}};
}

void start_live(const ServedModel& model, std::shared_ptr<Exchange> exchange) {
  exchange->attach(std::make_shared<Live>(model));
  exchange->stream({.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}});
}

}  // namespace millrace
