#include "bench/cluster.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "engine/scheduler.h"

namespace millrace {
namespace {

constexpr size_t kHashedTokens = 64;  // by which a request that nobody knows finds its replica

uint64_t mixed(uint64_t value) {
  value ^= value >> 31;
  value *= 0x9E3779B97F4A7C15;
  value ^= value >> 29;
  value *= 0xBF58476D1CE4E5B9;
  return value ^ value >> 32;
}

uint64_t hash_of(std::span<const Token> prompt) {
  uint64_t hash = 1;
  for (Token token : prompt.first(std::min(prompt.size(), kHashedTokens)))
    hash = mixed(hash ^ static_cast<uint64_t>(token));
  return hash;
}

CacheLayout layout_of(int page_tokens) {
  const CacheSpec layer{.kind = CacheKind::paged, .bytes = {64, 64}};
  return plan_layout({&layer, 1}, {.page_tokens = page_tokens}).value();
}

// One engine, without a model.
class Replica {
 public:
  explicit Replica(const ClusterShape& shape)
      : shape_(shape),
        cache_(layout_of(shape.page_tokens), shape.pages, shape.second_pages),
        scheduler_(shape.limits, cache_, make_policy(shape.policy).value()) {}

  // Everything until then.
  void run_until(double time) {
    while (now_ < time && !scheduler_.idle()) step();
    if (scheduler_.idle()) now_ = std::max(now_, time);
  }
  int open() const { return open_; }
  int cached(std::span<const Token> prompt) const { return cache_.cached(Identity(), prompt); }
  double busy() const { return busy_; }
  double reading() const { return reading_; }
  double pages_used() const { return pages_used_; }
  const Metrics& metrics() const { return scheduler_.metrics(); }
  int64_t evictions() const { return cache_.counters().evictions; }

  bool submit(const Arrival& arrival, double now) {
    Request request;
    request.prompt = arrival.prompt;
    request.max_tokens = arrival.output;
    request.targets = shape_.targets;
    now_ = std::max(now_, now);
    if (!scheduler_.submit(std::move(request), now).ok()) return false;
    ++open_;
    return true;
  }
  std::vector<RequestRecord> take_records() {
    std::vector<RequestRecord> records = scheduler_.take_records();
    open_ -= static_cast<int>(records.size());
    return records;
  }

 private:
  void step() {
    const StepPlan plan = scheduler_.next(now_);
    if (plan.empty()) {  // nothing can be planned before the clock moves
      now_ += 1e-3;
      return;
    }
    Sampled sampled;
    int64_t read = 0;
    double pairs = 0;  // of a row and a token before it
    for (const Work& work : plan.work) {
      read += work.begin + work.count;
      pairs += work.count * (work.begin + work.count / 2.0);
      SampledRow row;
      if (work.samples) row.tokens.push_back(static_cast<Token>(mixed(++chosen_) % 1000));
      sampled.rows.push_back(std::move(row));
    }
    sampled.seconds = shape_.cost.seconds(plan.tokens, read, pairs) +
                      static_cast<double>(plan.moves.size()) * shape_.limits.page_move_seconds;
    busy_ += sampled.seconds;
    if (shape_.cost.reading(read) > shape_.cost.computing(plan.tokens, pairs)) reading_ += sampled.seconds;
    now_ += sampled.seconds;
    scheduler_.commit(plan, sampled, now_);
    const Metrics& m = scheduler_.metrics();
    pages_used_ = std::max(pages_used_, static_cast<double>(m.pages_used - m.pages_cached) / shape_.pages);
  }

  const ClusterShape& shape_;
  KvCache cache_;
  Scheduler scheduler_;
  double now_ = 0, busy_ = 0, reading_ = 0, pages_used_ = 0;
  uint64_t chosen_ = 0;
  int open_ = 0;
};

// Of those that are not too busy, whoever has most of the prompt; where several have as much, each has its own draw, so
// that one replica more or less moves only its share.
size_t choose(std::span<const std::unique_ptr<Replica>> replicas, const ClusterShape& shape,
              std::span<const Token> prompt, size_t turn) {
  if (!shape.by_prefix) return turn % replicas.size();
  double open = 1;
  for (const auto& each : replicas) open += each->open();
  const double bound = std::max(1.0, shape.most_load * open / static_cast<double>(replicas.size()));
  const uint64_t hash = hash_of(prompt);
  size_t best = replicas.size();
  std::pair<int, uint64_t> largest = {};
  for (size_t i = 0; i < replicas.size(); ++i) {
    if (replicas[i]->open() + 1 > bound) continue;
    const std::pair<int, uint64_t> draw = {replicas[i]->cached(prompt), mixed(hash ^ mixed(i + 1))};
    if (best == replicas.size() || draw > largest) best = i, largest = draw;
  }
  return best < replicas.size() ? best : turn % replicas.size();
}

struct Tally {
  ClusterReport report;
  Histogram first, next;

  void add(const std::vector<RequestRecord>& records, const Targets& targets) {
    for (const RequestRecord& record : records) {
      report.on_time += record.on_time;
      const bool late = targets.first_token > 0 && record.first_token > targets.first_token;
      if (!record.on_time) ++(late ? report.late_first : report.late_next);
      report.tokens_in += record.tokens_in;
      report.tokens_out += record.tokens_out;
      report.cached += record.cached;
      report.preemptions += record.preemptions;
      first.add(record.first_token);
      if (record.tokens_out > 1) next.add(record.next_token);
    }
  }
};

}  // namespace

double StepCost::seconds(int rows, int64_t tokens, double pairs) const {
  return fixed + row_exchange * rows + std::max(reading(tokens), computing(rows, pairs));
}

Result<ClusterReport> run_cluster(std::span<const Arrival> arrivals, const ClusterShape& shape) {
  TRY_VOID(check_limits(shape.limits));
  TRY(auto policy, make_policy(shape.policy));
  if (shape.replicas < 1 || shape.pages < 1 || arrivals.empty())
    return error(Code::invalid, "{} replicas of {} pages for {} requests: at least one of each", shape.replicas,
                 shape.pages, arrivals.size());
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int i = 0; i < shape.replicas; ++i) replicas.push_back(std::make_unique<Replica>(shape));
  Tally tally;
  ClusterReport& report = tally.report;
  for (size_t i = 0; i < arrivals.size(); ++i) {
    for (const auto& each : replicas) {
      each->run_until(arrivals[i].time);
      tally.add(each->take_records(), shape.targets);
    }
    ++report.requests;
    Replica& chosen = *replicas[choose(replicas, shape, arrivals[i].prompt, i)];
    if (!chosen.submit(arrivals[i], arrivals[i].time)) ++report.refused;
  }
  for (const auto& each : replicas) {
    each->run_until(std::numeric_limits<double>::infinity());
    tally.add(each->take_records(), shape.targets);
  }
  double busy = 0, reading = 0;
  for (const auto& each : replicas) {
    busy += each->busy();
    reading += each->reading();
    report.pages_used = std::max(report.pages_used, each->pages_used());
    report.evictions += each->evictions();
    report.seconds = std::max(report.seconds, each->metrics().last_event - arrivals.front().time);
  }
  report.busy = report.seconds > 0 ? busy / (report.seconds * shape.replicas) : 0;
  report.reading = busy > 0 ? reading / busy : 0;
  report.first_p50 = tally.first.quantile(0.5);
  report.first_p99 = tally.first.quantile(0.99);
  report.next_p50 = tally.next.quantile(0.5);
  report.next_p99 = tally.next.quantile(0.99);
  return report;
}

std::string breaks_first(const ClusterReport& report) {
  const int64_t late = report.late_first + report.late_next + report.refused;
  if (late == 0) return "nothing";
  if (report.preemptions * 20 > report.requests || report.pages_used > 0.97)
    return report.late_next > report.late_first ? "memory for caches: answers are preempted"
                                                : "memory for caches: prompts wait for pages";
  if (report.late_next > report.late_first)
    return report.reading > 0.5 ? "the pace of tokens: reading weights and caches" : "the pace of tokens: computing";
  return report.reading > 0.5 ? "first tokens: places, while memory is read" : "first tokens: computing prompts";
}

Result<Sized> size_cluster(std::span<const Arrival> arrivals, ClusterShape shape, double on_time, int most) {
  Sized sized;
  auto tried = [&](int replicas) {
    shape.replicas = replicas;
    return run_cluster(arrivals, shape);
  };
  int low = 0, high = 1;  // too few; perhaps enough
  for (;; low = high, high = std::min(high * 2, most)) {
    TRY(ClusterReport report, tried(high));
    if (report.goodput() >= on_time) {
      sized.report = report;
      break;
    }
    sized.fewer = report;
    if (high == most) return sized;
  }
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    TRY(ClusterReport report, tried(middle));
    (report.goodput() >= on_time ? high : low) = middle;
    (report.goodput() >= on_time ? sized.report : sized.fewer) = report;
  }
  sized.replicas = high;
  return sized;
}

}  // namespace millrace
