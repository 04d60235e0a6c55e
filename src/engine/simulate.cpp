#include "engine/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "engine/simulate_world.h"

namespace millrace {
namespace {

constexpr int64_t kLeastSteps = 200, kMostSteps = 20000;
constexpr int kStalled = 100;  // steps without work while somebody waits

// One seed.
class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : seed_(seed), world_(seed), drafter_(world_), life_(std::make_unique<Life>(world_)) {}

  Result<void> run();
  int64_t step() const { return totals_.steps; }
  SimulationTotals totals() const;

 private:
  Result<void> arrive();
  void give_up();
  Result<void> die();
  void count_life(SimulationTotals& sum) const;
  Result<void> one_step();
  Result<void> commit_before();
  Result<void> check_plan(const StepPlan& plan, const std::set<const Sequence*>& lacking_one) const;
  Result<void> check_event(const Event& event);
  Result<void> check_all() const;
  Result<void> check_end();

  // An engine from its start to its death.
  struct Life {
    explicit Life(World& world)
        : cache(world.layout, world.pages, world.second_pages, world.look_back),
          model(world.layout, world.pages, world.second_pages, world.vocab, world.spare_pages, world.look_back),
          scheduler(world.limits, cache, make_policy(world.policy).value(), world_control(world)) {}
    KvCache cache;
    HashModel model;
    Scheduler scheduler;
  };

  const uint64_t seed_;
  World world_;
  WorldDrafter drafter_;
  std::unique_ptr<Life> life_;
  std::map<RequestId, OpenRequest> open_;
  struct Flight {
    StepPlan plan;
    Sampled sampled;
  };
  std::optional<Flight> before_;  // the step whose results are not committed yet
  SimulationTotals totals_;
  double now_ = 0;
  int stalled_ = 0;
};

Result<void> Simulation::run() {
  while (true) {
    bool enough = totals_.requests >= world_.least_requests && totals_.steps >= kLeastSteps;
    if (enough && life_->scheduler.idle() && !before_) break;
    if (!enough) TRY_VOID(arrive());
    give_up();
    TRY_VOID(die());
    TRY_VOID(one_step());
    TRY_VOID(check_all());
    if (totals_.steps > kMostSteps)
      return error(Code::internal, "somebody starves: {} requests are open", open_.size());
    if (stalled_ > kStalled) return error(Code::internal, "nothing moves, and {} requests are open", open_.size());
  }
  return check_end();
}

Result<void> Simulation::arrive() {
  for (int count = world_.arrivals(life_->scheduler.idle()); count > 0; --count) {
    Request request = world_.request();
    int most = life_->cache.most_pages(static_cast<int>(request.prompt.size()) + request.max_tokens,
                                       world_.limits.step_tokens, world_.limits.max_drafts > 0);
    bool too_large =
        most > world_.pages || static_cast<int>(request.prompt.size()) + request.max_tokens > world_.limits.context;
    OpenRequest open;
    for (int choice = 0; choice < request.choices; ++choice) open.truth.push_back(life_->model.alone(request, choice));
    open.received.assign(open.truth.size(), 0);
    open.request = request;
    ++totals_.requests;
    auto id = life_->scheduler.submit(std::move(request), now_);
    if (too_large && (id.ok() || (id.error().code != Code::no_memory && id.error().code != Code::invalid)))
      return error(Code::internal, "a request that can never fit was not refused as such");
    if (!id.ok()) {
      ++totals_.refused;
      if (!too_large && id.error().code != Code::overloaded) return within("refused", id.error());
      continue;
    }
    totals_.answers += static_cast<int64_t>(open.truth.size());
    drafter_.open(*id, open.truth);
    open_.emplace(*id, std::move(open));
  }
  return {};
}

void Simulation::give_up() {
  if (open_.empty() || !world_.dice.chance(world_.cancel_chance)) return;
  auto chosen = std::next(open_.begin(), world_.dice.roll(0, static_cast<int>(open_.size()) - 1));
  life_->scheduler.cancel(chosen->first, now_);
  drafter_.close(chosen->first);
  open_.erase(chosen);
  ++totals_.cancels;
}

// In some worlds the engine dies now and then, with whatever was in flight; another goes on from what was told.
Result<void> Simulation::die() {
  const auto step = static_cast<uint64_t>(totals_.steps);
  if (seed_ % 4 != 3 || (seed_ * 2654435761 + step * 40503) % 67 != 0) return {};
  ++totals_.deaths;
  count_life(totals_);
  before_.reset();
  life_ = std::make_unique<Life>(world_);
  std::map<RequestId, OpenRequest> open;
  for (auto& [old, request] : std::exchange(open_, {})) {
    Request again = request.request;
    again.again = true;
    for (size_t choice = 0; choice < request.truth.size(); ++choice) {
      const int received = request.received[choice];
      const auto first = request.truth[choice].tokens.begin() + std::ssize(again.prompt);
      again.resumed.push_back({.tokens = {first, first + std::max(received, 0)}, .finished = received < 0});
    }
    auto id = life_->scheduler.submit(std::move(again), now_);
    if (!id.ok()) return within("a request that was let in before is refused", id.error());
    drafter_.close(old);
    drafter_.open(*id, request.truth);
    open.emplace(*id, std::move(request));
  }
  open_ = std::move(open);
  return {};
}

Result<void> Simulation::one_step() {
  if (before_ && (!world_.overlap || world_.dice.chance(0.2))) TRY_VOID(commit_before());
  if (before_ && seed_ % 2 == 0 && life_->scheduler.had_better_wait()) TRY_VOID(commit_before());
  std::set<const Sequence*> lacking_one;
  for (const Sequence* sequence : life_->scheduler.sequences())
    if (sequence->state == Sequence::State::running && sequence->remaining() == 1) lacking_one.insert(sequence);
  StepPlan plan = life_->scheduler.next(now_);
  TRY_VOID(check_plan(plan, lacking_one));
  ++totals_.steps;
  stalled_ = plan.work.empty() && !life_->scheduler.idle() ? stalled_ + 1 : 0;
  std::optional<Flight> flight;
  if (!plan.empty()) {
    Sampled sampled = life_->model.run(plan, world_.faults, world_.dice, [this](const Work& work, int at, auto& out) {
      drafter_.propose(work, at, out);
    });
    sampled.seconds = world_.step_seconds(plan);
    now_ += sampled.seconds;
    flight = Flight{std::move(plan), std::move(sampled)};
  } else {
    now_ += 1e-3;
  }
  life_->model.poison_free(life_->cache);
  if (before_) TRY_VOID(commit_before());
  before_ = std::move(flight);
  if (before_ && !world_.overlap) TRY_VOID(commit_before());
  life_->model.poison_free(life_->cache);
  return {};
}

Result<void> Simulation::commit_before() {
  for (const Event& event : life_->scheduler.commit(before_->plan, before_->sampled, now_))
    TRY_VOID(check_event(event));
  before_.reset();
  return {};
}

Result<void> Simulation::check_event(const Event& event) {
  auto found = open_.find(event.request);
  if (found == open_.end()) return error(Code::internal, "news of request {} that is not open", event.request);
  OpenRequest& open = found->second;
  auto choice = static_cast<size_t>(event.choice);
  if (event.finish == Finish::failed) {
    ++totals_.failures;
    open.received[choice] = -1;
  } else {
    const HashAnswer& truth = open.truth[choice];
    int at = static_cast<int>(open.request.prompt.size()) + open.received[choice];
    if (open.received[choice] < 0 || at >= static_cast<int>(truth.tokens.size()))
      return error(Code::internal, "request {} choice {}: a token after the last", event.request, event.choice);
    if (!event.token || *event.token != truth.tokens[static_cast<size_t>(at)])
      return error(Code::internal, "request {} choice {}: token {} is {}, alone it is {}", event.request, event.choice,
                   open.received[choice], event.token.value_or(-1), truth.tokens[static_cast<size_t>(at)]);
    ++open.received[choice];
    ++totals_.tokens;
    if ((event.finish != Finish::none) != (at + 1 == static_cast<int>(truth.tokens.size())))
      return error(Code::internal, "request {} choice {} ends in the wrong place", event.request, event.choice);
    if (event.finish != Finish::none) {
      world_.remember(truth.tokens, open.request);
      open.received[choice] = -1;
    }
  }
  if (std::all_of(open.received.begin(), open.received.end(), [](int count) { return count < 0; })) {
    drafter_.close(event.request);
    open_.erase(found);
  }
  return {};
}

Result<void> Simulation::check_plan(const StepPlan& plan, const std::set<const Sequence*>& lacking_one) const {
  int tokens = 0;
  std::set<const Sequence*> planned;
  for (const Work& work : plan.work) {
    tokens += work.count;
    if (work.count < 1 || !planned.insert(work.sequence).second)
      return error(Code::internal, "sequence {} is planned twice or for nothing", work.sequence->id);
  }
  if (tokens != plan.tokens || tokens > world_.limits.step_tokens)
    return error(Code::internal, "a step of {} tokens, {} are allowed", tokens, world_.limits.step_tokens);
  if (static_cast<int>(plan.work.size()) > world_.limits.max_sequences)
    return error(Code::internal, "{} sequences in a step, {} are allowed", plan.work.size(),
                 world_.limits.max_sequences);
  for (const Sequence* sequence : lacking_one)
    if (sequence->state == Sequence::State::running && !planned.contains(sequence))
      return error(Code::internal, "sequence {} lacks one token and did not get it", sequence->id);
  return {};
}

Result<void> Simulation::check_all() const {
  TRY_VOID(life_->scheduler.check());
  for (const Sequence* sequence : life_->scheduler.sequences()) {
    if (sequence->state != Sequence::State::running) continue;
    const OpenRequest& open = open_.at(sequence->request);
    TRY_VOID(
        life_->model.compare(sequence->pages, open.truth[static_cast<size_t>(sequence->choice)], sequence->certain()));
    KvUse use = life_->cache.use(sequence->pages, sequence->computed);
    int64_t allowed = 0;
    for (const auto& group : world_.layout.groups)
      if (!group.recurrent())
        allowed += (group.spec.bytes[0] + group.spec.bytes[1]) * static_cast<int64_t>(group.layers.size()) *
                   (group.page_tokens - 1);
    if (use.reserved_bytes - use.used_bytes > allowed)
      return error(Code::internal, "sequence {} wastes {} bytes, at most {} may be", sequence->id,
                   use.reserved_bytes - use.used_bytes, allowed);
  }
  return {};
}

// Everybody has gone: only the tree holds pages, and it gives all of them back.
Result<void> Simulation::check_end() {
  if (!open_.empty()) return error(Code::internal, "{} requests never ended", open_.size());
  TRY_VOID(life_->scheduler.check());
  while (life_->cache.tree().evict()) continue;
  if (life_->cache.pool().free() != world_.pages)
    return error(Code::internal, "{} pages are lost", world_.pages - life_->cache.pool().free());
  return {};
}

// What the engine that is there has counted.
void Simulation::count_life(SimulationTotals& sum) const {
  const Metrics& metrics = life_->scheduler.metrics();
  const CacheCounters& counters = life_->cache.counters();
  sum.preemptions += metrics.preemptions;
  sum.restarts += metrics.restarts;
  sum.prefix_hits += metrics.prefix_hits;
  sum.cached_tokens += metrics.cached_tokens;
  sum.drafts_accepted += metrics.accepted_drafts;
  sum.drafts_rejected += metrics.drafted_tokens - metrics.accepted_drafts;
  sum.evictions += counters.evictions;
  sum.moved_out += counters.moved_out;
  sum.moved_in += counters.moved_in;
  sum.failed_moves += counters.failed_moves;
  sum.copies += counters.copies;
  sum.stripped += counters.stripped;
}

SimulationTotals Simulation::totals() const {
  SimulationTotals sum = totals_;
  sum.seeds = 1;
  sum.least_steps = sum.steps;
  sum.least_requests = sum.requests;
  count_life(sum);
  return sum;
}

// Every counter, once: adding and printing go through this list.
template <class Totals, class F>
void each_counter(Totals& totals, F&& f) {
  f("seeds", totals.seeds);
  f("steps", totals.steps);
  f("requests", totals.requests);
  f("answers", totals.answers);
  f("tokens", totals.tokens);
  f("refused", totals.refused);
  f("preemptions", totals.preemptions);
  f("evictions", totals.evictions);
  f("pages moved out", totals.moved_out);
  f("pages moved in", totals.moved_in);
  f("failed moves", totals.failed_moves);
  f("restarts", totals.restarts);
  f("page copies", totals.copies);
  f("pages stripped", totals.stripped);
  f("cancels", totals.cancels);
  f("broken rows", totals.failures);
  f("deaths", totals.deaths);
  f("prefix hits", totals.prefix_hits);
  f("cached tokens", totals.cached_tokens);
  f("drafts accepted", totals.drafts_accepted);
  f("drafts rejected", totals.drafts_rejected);
}

}  // namespace

void SimulationTotals::add(const SimulationTotals& other) {
  std::vector<int64_t> more;
  each_counter(other, [&](const char*, int64_t value) { more.push_back(value); });
  size_t next = 0;
  each_counter(*this, [&](const char*, int64_t& value) { value += more[next++]; });
  least_steps = std::min(least_steps, other.least_steps);
  least_requests = std::min(least_requests, other.least_requests);
}

bool SimulationSummary::nothing_untried() const {
  bool all = true;
  each_counter(totals, [&](const char*, int64_t value) { all = all && value > 0; });
  return all;
}

SimulationSummary simulate(uint64_t first_seed, int64_t seeds,
                           const std::function<bool(const SimulationSummary&)>& progress) {
  SimulationSummary summary;
  for (int64_t index = 0; index < seeds; ++index) {
    uint64_t seed = first_seed + static_cast<uint64_t>(index);
    Simulation simulation(seed);
    Result<void> ran = simulation.run();
    summary.totals.add(simulation.totals());
    if (!ran) {
      summary.failure = {seed, simulation.step(), ran.error().message};
      return summary;
    }
    if (progress && !progress(summary)) return summary;
  }
  return summary;
}

std::string describe(const SimulationSummary& summary) {
  std::string text;
  each_counter(summary.totals,
               [&](const char* name, int64_t value) { text += fmt::format("{:<18}{:>14}\n", name, value); });
  if (summary.totals.seeds > 0)
    text += fmt::format("least of a seed   {:>14} steps, {} requests\n", summary.totals.least_steps,
                        summary.totals.least_requests);
  if (summary.failure)
    text += fmt::format("FAILED: seed {}, step {}: {}\n", summary.failure->seed, summary.failure->step,
                        summary.failure->what);
  return text;
}

}  // namespace millrace
