#include "bench/replay.h"

#include <algorithm>
#include <chrono>
#include <map>

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

Request request_of(const Arrival& arrival, size_t index, const ReplayOptions& options) {
  Request request;
  request.prompt = arrival.prompt;
  request.max_tokens = arrival.output;
  request.sampling.temperature = 0;
  request.targets = options.targets;
  if (!options.share_prefixes) {
    for (size_t byte = 0; byte < 8; ++byte) request.root.bytes[byte] = static_cast<uint8_t>((index + 1) >> (8 * byte));
  }
  return request;
}

// The longest time any request waited between two of its tokens.
class Gaps {
 public:
  void note(RequestId request, int choice, double now) {
    auto [found, fresh] = last_.try_emplace({request, choice}, Seen{now, 0});
    if (fresh) return;
    found->second.longest = std::max(found->second.longest, now - found->second.at);
    found->second.at = now;
  }
  double quantile(double fraction) const {
    std::vector<double> all;
    for (const auto& [key, seen] : last_) all.push_back(seen.longest);
    if (all.empty()) return 0;
    auto nth = all.begin() + static_cast<ptrdiff_t>(fraction * static_cast<double>(all.size() - 1));
    std::nth_element(all.begin(), nth, all.end());
    return *nth;
  }

 private:
  struct Seen {
    double at, longest;
  };
  std::map<std::pair<RequestId, int>, Seen> last_;
};

// Scheduler, cache and runner on this thread, under a clock of our own.
Result<ReplayReport> replay_virtual(const Model& model, Backend& backend, const std::vector<Arrival>& arrivals,
                                    const ReplayOptions& options) {
  TRY(EngineParts parts, EngineParts::create(model, backend, options.engine));
  Scheduler& scheduler = *parts.scheduler;
  ReplayReport report = {.requests = arrivals.size(), .pages = parts.options.executor.pages};
  Flight flight;
  std::vector<RequestId> gone;
  Gaps gaps;
  double now = 0, page_steps = 0;
  size_t next = 0;
  while (next < arrivals.size() || !scheduler.idle()) {
    auto begin = Clock::now();
    if (scheduler.idle() && next < arrivals.size()) now = std::max(now, arrivals[next].time);
    for (; next < arrivals.size() && arrivals[next].time <= now; ++next) {
      (void)scheduler.submit(request_of(arrivals[next], next, options), arrivals[next].time)
          .ok();  // refusals are counted
    }
    for (const RequestRecord& record : scheduler.take_records()) gone.push_back(record.id);
    parts.plan(flight, gone, now);
    double planning = since(begin);
    if (flight.plan.empty()) {
      now += 1e-3;  // everybody waits for time to pass
      continue;
    }
    parts.run(flight);
    begin = Clock::now();
    now += planning + flight.sampled.seconds;
    for (const Event& event : parts.land(flight, now)) {
      if (event.token) gaps.note(event.request, event.choice, now);
    }
    double committing = since(begin);
    now += committing;
    report.step_seconds += flight.sampled.seconds;
    report.outside_seconds += planning + committing;
    const Metrics& m = scheduler.metrics();
    page_steps += static_cast<double>(m.pages_used - m.pages_cached) / report.pages;
    size_t ended = static_cast<size_t>(m.finished + m.refused + m.failed);
    if (options.progress && !options.progress(ended, arrivals.size())) return error(Code::cancelled, "stopped");
  }
  report.metrics = scheduler.metrics();
  report.seconds = now - arrivals.front().time;
  report.page_use = report.metrics.steps > 0 ? page_steps / static_cast<double>(report.metrics.steps) : 0;
  report.token_gap_p99 = gaps.quantile(0.99);
  return report;
}

Result<ReplayReport> replay_real(const Model& model, Backend& backend, const std::vector<Arrival>& arrivals,
                                 const ReplayOptions& options) {
  TRY(auto engine, Engine::create(model, backend, options.engine));
  std::mutex mutex;
  std::condition_variable changed;
  size_t ended = 0;
  Gaps gaps;
  auto begin = Clock::now();
  for (size_t i = 0; i < arrivals.size(); ++i) {
    std::this_thread::sleep_until(
        begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(arrivals[i].time)));
    if (options.progress && !options.progress(i, arrivals.size())) return error(Code::cancelled, "stopped");
    engine->submit(request_of(arrivals[i], i, options), [&](std::span<const Event> events) {
      std::lock_guard lock(mutex);
      for (const Event& event : events) {
        if (event.token) gaps.note(event.request, event.choice, since(begin));
        if (event.finish != Finish::none) ++ended;
      }
      changed.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  while (ended < arrivals.size()) {
    changed.wait_for(lock, std::chrono::milliseconds(200));
    if (options.progress && !options.progress(ended, arrivals.size())) {
      lock.unlock();
      engine.reset();
      return error(Code::cancelled, "stopped");
    }
  }
  double seconds = since(begin);
  lock.unlock();
  Engine::Snapshot after = engine->snapshot();
  ReplayReport report = {.metrics = after.metrics, .requests = arrivals.size(), .seconds = seconds};
  report.step_seconds = after.metrics.step_seconds.sum();
  report.outside_seconds = std::max(0.0, after.outside_seconds);
  report.pages = after.pages;
  report.token_gap_p99 = gaps.quantile(0.99);
  return report;
}

}  // namespace

double ReplayReport::prefix_rate() const {
  return metrics.tokens_in > 0 ? static_cast<double>(metrics.cached_tokens) / static_cast<double>(metrics.tokens_in)
                               : 0;
}

double ReplayReport::overhead() const {
  double both = step_seconds + outside_seconds;
  return both > 0 ? outside_seconds / both : 0;
}

Result<ReplayReport> replay(const Model& model, Backend& backend, const std::vector<Arrival>& arrivals,
                            const ReplayOptions& options) {
  if (arrivals.empty()) return error(Code::invalid, "there is nothing to replay");
  return options.real_time ? replay_real(model, backend, arrivals, options)
                           : replay_virtual(model, backend, arrivals, options);
}

}  // namespace millrace
