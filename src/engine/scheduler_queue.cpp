// Coming, waiting, starting, being sent back, ending: everything about the queues of the scheduler.
#include <algorithm>

#include "base/check.h"
#include "cache/planted.h"
#include "engine/scheduler.h"

namespace millrace {

Result<void> check_limits(const Limits& limits) {
  auto positive = [](int value) { return value >= 1 && value <= 1 << 24; };
  if (!positive(limits.step_tokens) || !positive(limits.max_sequences) || !positive(limits.max_waiting) ||
      !positive(limits.max_choices) || !positive(limits.context))
    return error(Code::invalid,
                 "limits must be 1 to {}: {} tokens a step, {} sequences, {} waiting, {} choices, {} context", 1 << 24,
                 limits.step_tokens, limits.max_sequences, limits.max_waiting, limits.max_choices, limits.context);
  if (limits.max_drafts < 0 || limits.step_drafts < 0 || !(limits.page_move_seconds >= 0))
    return error(Code::invalid, "{} drafts and {} seconds a page are out of range", limits.max_drafts,
                 limits.page_move_seconds);
  if (limits.step_tokens < limits.max_sequences)
    return error(Code::invalid, "{} tokens a step are too few for {} sequences at once: take as many at least",
                 limits.step_tokens, limits.max_sequences);
  if (limits.whole_windows &&
      (limits.step_tokens < limits.max_sequences + limits.max_drafts || limits.step_drafts < limits.max_drafts))
    return error(Code::invalid,
                 "{} tokens a step and {} sequences leave no room for {} guesses at a time: take more tokens a step, "
                 "fewer sequences or fewer guesses",
                 limits.step_tokens, limits.max_sequences, limits.max_drafts);
  return {};
}

Scheduler::Scheduler(const Limits& limits, KvCache& cache, std::unique_ptr<Policy> policy,
                     std::unique_ptr<DraftControl> control)
    : limits_(limits), cache_(cache), policy_(std::move(policy)), control_(std::move(control)) {
  CHECK(check_limits(limits).ok(), "limits were not checked");
}

Scheduler::~Scheduler() {
  for (auto& [id, asked] : requests_)
    for (auto& sequence : asked.answers) cache_.release(sequence->pages);
}

// ---- submission ----

Result<void> Scheduler::admissible(const Request& request, double now) const {
  if (request.prompt.empty() || request.max_tokens < 1)
    return error(Code::invalid, "a prompt of {} tokens and {} to generate: both must be at least 1",
                 request.prompt.size(), request.max_tokens);
  if (request.choices < 1 || request.choices > limits_.max_choices)
    return error(Code::invalid, "{} choices: ask for 1 to {}", request.choices, limits_.max_choices);
  int open = request.choices;
  for (const Resumed& before : request.resumed) {
    open -= before.finished;
    if (!before.finished && std::ssize(before.tokens) >= request.max_tokens)
      return error(Code::invalid, "an answer of {} tokens goes on after {}", request.max_tokens, before.tokens.size());
  }
  if (open < 1 || (!request.resumed.empty() && std::ssize(request.resumed) != request.choices))
    return error(Code::invalid, "{} answers go on, of {} asked for", request.resumed.size(), request.choices);
  if (limits_.whole_windows && request.sampling.mirostat != 0)
    return error(Code::invalid, "mirostat goes with guesses by rule exact only: it counts on every token being drawn");
  TRY_VOID(check_fill(request, limits_.fills, limits_.step_tokens));
  int64_t total = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (total > limits_.context)
    return error(Code::invalid, "{} prompt tokens and {} to generate are {} tokens, the context has {}",
                 request.prompt.size(), request.max_tokens, total, limits_.context);
  int pages = cache_.most_pages(static_cast<int>(total), limits_.step_tokens, limits_.max_drafts > 0);
  if (pages > cache_.pool().pages())
    return error(Code::no_memory,
                 "{} tokens need {} pages of cache, there are {} in all: shorten it or give the cache more memory",
                 total, pages, cache_.pool().pages());
  if (request.again) return {};
  // Whoever finds a free place only waits for the next step: a burst is not refused while places are free.
  if (std::ssize(running_) + std::ssize(waiting_) + request.choices >
      int64_t{limits_.max_sequences} + limits_.max_waiting)
    return error(Code::overloaded, "{} answers run and {} wait already, at most {} may run and {} wait",
                 running_.size(), waiting_.size(), limits_.max_sequences, limits_.max_waiting);
  int uncached = static_cast<int>(request.prompt.size()) - cache_.cached(request.root, request.prompt);
  if (auto wait = policy_->too_long(load(now), request.targets, uncached))
    return error(Code::overloaded, "the first token would come in about {:.2f} s, too late to promise {:.2f} s", *wait,
                 request.targets.first_token);
  return {};
}

Result<RequestId> Scheduler::submit(Request request, double now) {
  if (metrics_.submitted == 0) metrics_.first_arrival = now;
  metrics_.submitted += !request.again;
  if (auto allowed = admissible(request, now); !allowed) {
    ++metrics_.refused;
    return allowed.error();
  }
  RequestId id = next_request_++;
  OpenRequest& asked = requests_[id];
  asked.request = std::make_shared<const Request>(std::move(request));
  asked.arrived = now;
  asked.open = asked.request->choices;
  Tenant& owner = tenant(asked.request->tenant);
  for (int choice = 0; choice < asked.request->choices; ++choice) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = next_sequence_++;
    sequence->request = id;
    sequence->choice = choice;
    sequence->asked = asked.request;
    sequence->tenant = &owner;
    sequence->tokens = asked.request->prompt;
    sequence->pages = cache_.open(sequence->id, asked.request->root);
    sequence->pages.mark = cache_.mark_of(static_cast<int>(asked.request->prompt.size()));
    sequence->arrived = now;
    if (limits_.fills) {
      sequence->fills = true;
      sequence->shape = {static_cast<int32_t>(asked.request->prompt.size()), asked.request->max_tokens,
                         asked.request->fill, limits_.shifted};
    }
    resume(asked, *sequence, now);
    if (sequence->state == Sequence::State::waiting) {
      ++owner.waiting;
      waiting_.push_back(sequence.get());
    }
    asked.answers.push_back(std::move(sequence));
  }
  return id;
}

// An answer that another engine has begun goes on from what that had told.
void Scheduler::resume(OpenRequest& asked, Sequence& sequence, double now) {
  if (asked.request->resumed.empty()) return;
  const Resumed& before = asked.request->resumed[static_cast<size_t>(sequence.choice)];
  sequence.tokens.insert(sequence.tokens.end(), before.tokens.begin(), before.tokens.end());
  if (!before.tokens.empty()) asked.first_token = now;
  if (!before.finished) return;
  sequence.state = Sequence::State::finished;
  --asked.open;
}

// A tenant that comes (back) starts level with whoever of the others had least, so absence earns nothing.
Tenant& Scheduler::tenant(const std::string& name) {
  auto active = [](const Tenant& at) { return at.running + at.waiting > 0; };
  double least = served_floor_;
  bool any = false;
  for (const auto& [other, at] : tenants_) {
    if (!active(at)) continue;
    least = any ? std::min(least, at.served) : at.served;
    any = true;
  }
  // Whoever is away and would start level anyway need not be remembered.
  std::erase_if(tenants_, [&](const auto& at) { return !active(at.second) && at.second.served <= least; });
  Tenant& found = tenants_[name];
  found.name = name;
  if (!active(found)) found.served = std::max(found.served, least);
  return found;
}

int Scheduler::active_tenants() const {
  int active = 0;
  for (const auto& [name, at] : tenants_) active += at.running + at.waiting > 0;
  return std::max(1, active);
}

Load Scheduler::load(double now) const {
  Load seen{.now = now, .limits = &limits_, .time = &step_time_, .running = running_, .queue = waiting_};
  seen.mean_seconds = mean_seconds_;
  seen.waiting = static_cast<int>(waiting_.size());
  for (const Sequence* sequence : running_) {
    int lacks = sequence->remaining();
    if (lacks == 1 && !sequence->fills) {
      ++seen.decodes;
      seen.decode_context += sequence->computed;
    }
    if (sequence->chosen() == 0) seen.prompt_tokens += std::max(0, lacks);
  }
  for (const Sequence* sequence : waiting_) {
    seen.prompt_tokens += sequence->choice == 0 ? sequence->remaining() : 1;
    if (seen.longest_waiting == nullptr || sequence->arrived < seen.longest_waiting->arrived)
      seen.longest_waiting = sequence;
  }
  return seen;
}

// ---- who runs ----

// Those who are to stay longest first. The oldest sequence of a tenant never yields for the tenant's share, so the
// oldest of all always goes on, and everybody ends.
void Scheduler::order_running() {
  int active = active_tenants();
  for (auto& [name, at] : tenants_) at.pages = 0;
  for (const Sequence* sequence : running_)
    for (const auto& table : sequence->pages.tables) sequence->tenant->pages += table.size() - table.gap();
  for (auto& [name, at] : tenants_)
    at.over_share =
        active > 1 && (at.running > limits_.max_sequences / active || at.pages > cache_.pool().pages() / active);
  auto older = [](const Sequence* a, const Sequence* b) {
    return a->arrived != b->arrived ? a->arrived < b->arrived : a->id < b->id;
  };
  std::sort(running_.begin(), running_.end(), older);
  std::vector<const Tenant*> seen;
  for (Sequence* sequence : running_) {
    bool first = std::find(seen.begin(), seen.end(), sequence->tenant) == seen.end();
    if (first) seen.push_back(sequence->tenant);
    sequence->yields = !first && sequence->tenant->over_share;
  }
  std::stable_sort(running_.begin(), running_.end(), [&](const Sequence* a, const Sequence* b) {
    int first = policy_->rank(*a), second = policy_->rank(*b);
    return first != second ? first > second : a->yields < b->yields;
  });
}

// An answer to a prompt that another answer is computing waits for it, to share its pages.
bool Scheduler::ready(const Sequence& sequence) const {
  if (sequence.pending > 0 || sequence.preempted_in == steps_) return false;
  if (sequence.choice == 0 || sequence.started || sequence.fills) return true;
  const Sequence& lead = *requests_.at(sequence.request).answers.front();
  return lead.state == Sequence::State::finished || lead.chosen() > 0 || lead.certain() >= lead.prompt() - 1;
}

Sequence* Scheduler::first_waiting(double now) const {
  Sequence* first = nullptr;
  for (Sequence* sequence : waiting_) {
    if (PLANTED(newest_starves) && sequence->id + 1 == next_sequence_) continue;
    if (ready(*sequence) && (first == nullptr || policy_->before(*sequence, *first, now))) first = sequence;
  }
  return first;
}

int Scheduler::missing(const Sequence& sequence) const {
  const int tokens = sequence.fills ? sequence.shape.total() : sequence.known() + 1;
  return cache_.missing(sequence.pages, tokens, limits_.step_tokens);
}

bool Scheduler::has_room(const Sequence& sequence) const {
  return static_cast<int>(running_.size()) < limits_.max_sequences && missing(sequence) <= cache_.room();
}

// If the next to start finds no room because others have more than their share, or less rank, those go.
void Scheduler::make_way(double now) {
  Sequence* first = first_waiting(now);
  first_waiting_ = first;
  if (first == nullptr) return;
  const Tenant& own = *first->tenant;
  int active = active_tenants();
  int pages = missing(*first);
  bool within_share = own.running == 0 || (own.running < limits_.max_sequences / active &&
                                           own.pages + pages <= cache_.pool().pages() / active);
  while (!running_.empty() && !(has_room(*first) && policy_->admits(load(now)))) {
    const Sequence& last = *running_.back();
    bool for_share = last.yields && last.tenant != first->tenant && within_share;
    if (!for_share && policy_->rank(*first) <= policy_->rank(last)) return;
    preempt(running_.size() - 1);
  }
}

void Scheduler::admit(StepPlan& plan, int& spare, double now) {
  while (spare > 0 && static_cast<int>(running_.size()) < limits_.max_sequences) {
    Sequence* sequence = first_waiting(now);
    if (sequence == nullptr || !policy_->admits(load(now))) return;
    int count = start(*sequence, spare, true);
    // With nobody else to wait for, what it shares may be what stands in its way.
    if (count == 0 && running_.empty()) count = start(*sequence, spare, false);
    if (count == 0) return;
    ++metrics_.prefix_lookups;
    metrics_.prefix_hits += sequence->computed > 0;
    if (!sequence->started && !sequence->asked->again) {
      sequence->reused = sequence->computed;
      metrics_.prefix_asked_tokens += static_cast<int64_t>(sequence->asked->prompt.size());
      metrics_.prefix_found_tokens += sequence->reused;
      metrics_.prefix_second_tokens += std::min(sequence->reused, sequence->from_second);
    }
    OpenRequest& asked = requests_.at(sequence->request);
    if (asked.started < 0) asked.started = now;
    sequence->started = true;
    leave(*sequence);
    sequence->state = Sequence::State::running;
    ++sequence->tenant->running;
    running_.push_back(sequence);
    spare -= count;
    plan_work(plan, *sequence, count);
  }
}

// Takes over what is cached and reserves room for the first rows. Returns how many they are; 0: no room, nothing is
// held.
int Scheduler::start(Sequence& sequence, int spare, bool reuse) {
  sequence.computed = sequence.committed = reuse && !sequence.fills ? take_over(sequence) : 0;
  sequence.confirmed = false;
  sequence.entries = -1;
  sequence.room = 0;
  if (running_.empty() || has_room(sequence)) {
    // Its first token comes out of the spare budget too: none was set aside for it.
    int count = rows_for(sequence, spare - (sequence.remaining() == 1 && !sequence.fills));
    if (count > 0 && sequence.fills && reserve(sequence, count)) return count;
    if (count > 0 && !sequence.fills &&
        cache_.reserve(sequence.pages, sequence.computed, sequence.computed + count, sequence.room > 0))
      return count;
  }
  cache_.release(sequence.pages);
  sequence.computed = sequence.committed = sequence.room = 0;
  return 0;
}

// From the answer that has the same prompt, or from whoever computed it before.
int Scheduler::take_over(Sequence& sequence) {
  const Sequence& lead = *requests_.at(sequence.request).answers.front();
  int reused = 0;
  if (&lead != &sequence && lead.state == Sequence::State::running && sequence.chosen() == 0 &&
      lead.certain() >= lead.prompt() - 1)
    reused = cache_.fork(lead.pages, sequence.pages, std::min(lead.certain(), lead.prompt() - 1 + cache_.look_back()));
  if (reused > 0) return reused;
  reused = cache_.reuse_prefix(sequence.pages, sequence.tokens);
  // A start for which there was no room may have been the one that brought them.
  sequence.from_second = std::max(sequence.from_second, sequence.pages.from_second);
  return reused;
}

// ---- who leaves ----

void Scheduler::leave(Sequence& sequence) {
  bool was_running = sequence.state == Sequence::State::running;
  auto& queue = was_running ? running_ : waiting_;
  queue.erase(std::find(queue.begin(), queue.end(), &sequence));
  --(was_running ? sequence.tenant->running : sequence.tenant->waiting);
  if (first_waiting_ == &sequence) first_waiting_ = nullptr;
  if (sequence.tenant->running + sequence.tenant->waiting == 0) served_floor_ = sequence.tenant->served;
}

// Its pages go to the tree, and it waits to go on. What a step in flight chooses for it still counts.
void Scheduler::preempt(size_t index) {
  Sequence& sequence = *running_[index];
  cache_.retire(sequence.pages, sequence.tokens, sequence.certain());
  leave(sequence);
  sequence.state = Sequence::State::waiting;
  ++sequence.tenant->waiting;
  sequence.computed = sequence.committed = 0;
  sequence.room = 0;
  ++sequence.residence;
  ++sequence.preemptions;
  sequence.preempted_in = steps_;
  waiting_.push_back(&sequence);
}

// Pages that did not come back from the second store: whoever was to read them starts over from its known tokens.
void Scheduler::restart_failed(const StepPlan& plan, const Sampled& sampled) {
  for (size_t index = 0; index < sampled.failed_moves.size(); ++index) {
    const PageMove& move = plan.moves[index];
    if (sampled.failed_moves[index] == 0 || move.kind != PageMove::Kind::in || PLANTED(failed_copy_ignored)) continue;
    for (auto& [id, asked] : requests_) {
      for (auto& sequence : asked.answers) {
        if (sequence->id != move.owner || sequence->state == Sequence::State::finished) continue;
        cache_.release(sequence->pages);
        sequence->computed = sequence->committed = sequence->pending = 0;
        sequence->room = 0;
        ++sequence->residence;
        ++sequence->attempt;
        ++metrics_.restarts;
        if (sequence->state == Sequence::State::waiting) continue;
        leave(*sequence);
        sequence->state = Sequence::State::waiting;
        ++sequence->tenant->waiting;
        waiting_.push_back(sequence.get());
      }
    }
  }
}

void Scheduler::finish(Sequence& sequence, Finish how, double now) {
  // What led to broken numbers is not offered to others.
  if (how == Finish::failed || PLANTED(cancelled_keeps_pages)) {
    if (how != Finish::cancelled) cache_.release(sequence.pages);
  } else {
    cache_.retire(sequence.pages, sequence.tokens, sequence.certain());
  }
  leave(sequence);
  sequence.state = Sequence::State::finished;
  OpenRequest& asked = requests_.at(sequence.request);
  if (asked.finish != Finish::cancelled && asked.finish != Finish::failed) asked.finish = how;
  if (double stayed = now - asked.started; asked.started >= 0 && how != Finish::cancelled)
    mean_seconds_ = mean_seconds_ == 0 ? stayed : 0.9 * mean_seconds_ + 0.1 * stayed;
  if (--asked.open > 0) return;
  record(sequence.request, asked, now);
  // A step in flight, or the commit that is looking at one, still has them; their tenant may be forgotten before they
  // are.
  for (auto& answer : asked.answers) ended_.push_back(std::move(answer));
  requests_.erase(requests_.find(sequence.request));
}

bool Scheduler::cancel(RequestId request, double now, int choice) {
  auto found = requests_.find(request);
  if (found == requests_.end()) return false;
  std::vector<Sequence*> open;
  for (auto& answer : found->second.answers)
    if (answer->state != Sequence::State::finished && (choice < 0 || answer->choice == choice))
      open.push_back(answer.get());
  for (Sequence* sequence : open) finish(*sequence, choice < 0 ? Finish::cancelled : Finish::stop, now);
  note_now();
  return !open.empty();
}

void Scheduler::record(RequestId id, const OpenRequest& asked, double now) {
  RequestRecord done{.id = id, .finish = asked.finish, .arrived = asked.arrived, .again = asked.request->again};
  const Targets& targets = asked.request->targets;
  double between = 0;
  int gaps = 0;
  for (const auto& answer : asked.answers) {
    done.tokens_out += answer->chosen();
    done.cached += answer->reused;
    done.preemptions += answer->preemptions;
    if (answer->times.size() < 2) continue;
    between += answer->times.back() - answer->times.front();
    gaps += static_cast<int>(answer->times.size()) - 1;
  }
  done.tokens_in = static_cast<int>(asked.request->prompt.size());
  done.end_to_end = now - asked.arrived;
  if (done.tokens_out > 0) {
    done.queue = asked.started - asked.arrived;
    done.first_token = asked.first_token - asked.arrived;
    done.next_token = gaps > 0 ? between / gaps : 0;
  }
  done.on_time = (asked.finish == Finish::stop || asked.finish == Finish::length) &&
                 (targets.first_token <= 0 || done.first_token <= targets.first_token) &&
                 (targets.next_token <= 0 || done.next_token <= targets.next_token);
  metrics_.add(done);
  metrics_.last_event = now;
  records_.push_back(done);
}

// ---- check ----

std::vector<const Sequence*> Scheduler::sequences() const {
  std::vector<const Sequence*> all;
  for (const auto& [id, asked] : requests_)
    for (const auto& sequence : asked.answers) all.push_back(sequence.get());
  return all;
}

Result<void> Scheduler::check() const {
  std::vector<KvCache::Holder> holders;
  size_t waiting = 0, running = 0;
  for (const Sequence* sequence : sequences()) {
    waiting += sequence->state == Sequence::State::waiting;
    running += sequence->state == Sequence::State::running;
    bool holds = !sequence->pages.empty();
    if (holds != (sequence->state == Sequence::State::running))
      return error(Code::internal, "sequence {} {} pages in the wrong state", sequence->id, holds ? "holds" : "lacks");
    if (sequence->committed > sequence->computed || sequence->pending < 0 || sequence->in_flight < 0)
      return error(Code::internal, "sequence {} has {} committed, {} computed, {} pending, {} in flight", sequence->id,
                   sequence->committed, sequence->computed, sequence->pending, sequence->in_flight);
    if (holds) holders.push_back({&sequence->pages, sequence->committed});
  }
  if (waiting != waiting_.size() || running != running_.size())
    return error(Code::internal, "{} wait and {} run, {} and {} are queued", waiting, running, waiting_.size(),
                 running_.size());
  for (const auto& [name, at] : tenants_) {
    auto of_tenant = [mine = &at](const Sequence* sequence) { return sequence->tenant == mine; };
    if (std::count_if(running_.begin(), running_.end(), of_tenant) != at.running ||
        std::count_if(waiting_.begin(), waiting_.end(), of_tenant) != at.waiting)
      return error(Code::internal, "tenant {} counts its sequences wrong", name);
  }
  return cache_.check(holders);
}

}  // namespace millrace
