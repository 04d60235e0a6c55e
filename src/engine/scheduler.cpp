#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"
#include "cache/planted.h"

namespace millrace {
namespace {

constexpr double kPauseFade = 0.05;  // of the latest pause between steps in their average

}  // namespace

StepPlan Scheduler::next(double now) {
  StepPlan plan;
  plan.number = ++steps_;
  out_of_pages_ = false;
  order_running();
  make_way(now);
  Load seen = load(now);
  const int least = seen.decodes + (limits_.whole_windows ? limits_.max_drafts : 0);  // the oldest goes on
  int budget = std::clamp(policy_->budget(seen), std::min(least, limits_.step_tokens), limits_.step_tokens);
  if (limits_.fills) budget = limits_.step_tokens;  // a pass is not cut
  int spare = budget - seen.decodes +
              PLANTED(budget_exceeded);  // for prompts and drafts: a sequence that lacks one token gets it
  hand_out_drafts(seen, spare);
  window_rows_ = limits_.step_drafts;
  // Those who are to stay longest come first, so whoever is preempted to make room has not been planned yet.
  for (size_t index = 0; index < running_.size(); ++index) {
    Sequence& sequence = *running_[index];
    int lacked = sequence.remaining(), count = rows_for(sequence, spare);
    if (count == 0) continue;
    bool room = true;
    while (!reserve(sequence, count)) {
      room = index + 1 < running_.size();
      out_of_pages_ = true;
      preempt(running_.size() - 1);
      if (!room) break;
    }
    if (!room) break;
    spare -= count - (lacked == 1 && !sequence.fills);
    plan_work(plan, sequence, count);
  }
  if (!out_of_pages_) admit(plan, spare, now);
  if (step_time_.trained())
    plan.expected = step_time_.predict({plan.tokens, plan.context, static_cast<int>(plan.work.size())});
  plan.moves = cache_.take_moves();
  plan.snapshots = cache_.take_snapshots();
  if (PLANTED(copies_out_of_order)) std::reverse(plan.moves.begin(), plan.moves.end());
  if (plan.empty()) return plan;
  if (flights_++ == 0) alone_ = plan.number, planned_at_ = now;
  return plan;
}

// Of who is running: those held by a step that guesses for them; those in a step without guesses, who go on (free); and
// those in none, who may have guesses as the others had. By turns, two steps give tokens of all that guess once, and of
// the others twice.
bool Scheduler::had_better_wait() const {
  int held = 0, held_rows = 0, free = 0, others = 0, prompts = 0;
  for (const Sequence* sequence : running_) {
    if (sequence->fills) continue;
    const int lacks = sequence->remaining();
    if (lacks > 1) prompts += lacks;
    if (lacks == 1) ++(sequence->in_flight > 0 ? free : others);
    if (lacks > 0 || sequence->in_flight == 0) continue;
    ++held;
    held_rows += 2 - lacks;  // what it lacked, and its guesses
  }
  if (held == 0 || free + others + prompts == 0) return held > 0;
  prompts = std::min(prompts, limits_.step_tokens);
  const int rows = held_rows / held;  // of who has guesses
  const double windows = static_cast<double>(std::max<int64_t>(1, metrics_.draft_windows));
  const double tokens = 1 + static_cast<double>(metrics_.accepted_drafts) / windows;
  auto seconds = [&](int guessing) {
    const int all = prompts + free + guessing * rows;
    return control_ == nullptr || all == 0 ? 0 : control_->step_seconds(all, guessing > 0 ? rows - 1 : 0);
  };
  const double together = seconds(held + others) + pause_, by_turns = seconds(others) + seconds(held);
  const double gained = (held + others) * tokens + prompts + free;
  return gained * by_turns >= (gained + prompts + free) * together;
}

// How long nothing ran before a step that waited for the one before it.
void Scheduler::note_pause(const StepPlan& plan, double seconds, double now) {
  --flights_;
  if (plan.number == alone_) {
    const double before = goes_on_ ? planned_at_ - last_commit_ : 0;
    const double pause = std::max(0.0, before + now - planned_at_ - seconds);
    pause_ += kPauseFade * (std::min(pause, seconds) - pause_);
  }
  last_commit_ = now;
  goes_on_ = !requests_.empty();
}

std::vector<Event> Scheduler::commit(const StepPlan& plan, const Sampled& sampled, double now) {
  CHECK(sampled.rows.size() == plan.work.size(), "{} results for {} works", sampled.rows.size(), plan.work.size());
  std::vector<Event> events;
  restart_failed(plan, sampled);
  cache_.settle(plan.moves, sampled.failed_moves);
  for (size_t index = 0; index < plan.work.size(); ++index) {
    const Work& work = plan.work[index];
    Sequence& sequence = *work.sequence;
    --sequence.in_flight;
    // It ended while the step ran, or what the step read was not there.
    if (sequence.state == Sequence::State::finished || sequence.attempt != work.attempt) continue;
    bool resident = sequence.residence == work.residence;
    if (resident && !sequence.fills) {
      sequence.committed = work.begin + work.count;
      sequence.confirmed = true;
      if (!PLANTED(entries_assumed)) sequence.entries = sampled.rows[index].entries;
    }
    if (work.samples) land(sequence, work, sampled.rows[index], now, events);
    if (resident && sequence.state == Sequence::State::running && !sequence.fills)
      cache_.publish(sequence.pages, sequence.tokens, sequence.certain());
  }
  note_step(plan, sampled, now);
  note_pause(plan, sampled.seconds, now);
  std::erase_if(ended_, [](const auto& sequence) { return sequence->in_flight == 0; });
  return events;
}

// Without room for all of it, a sequence does without guesses, unless they must be whole.
bool Scheduler::reserve(Sequence& sequence, int& count) {
  if (sequence.fills) return cache_.reserve(sequence.pages, 0, sequence.shape.total());
  if (cache_.reserve(sequence.pages, sequence.computed, sequence.computed + count, sequence.room > 0)) return true;
  if (sequence.room == 0 || limits_.whole_windows) return false;
  cache_.rollback(sequence.pages, sequence.computed);  // what was taken for guesses
  count -= std::exchange(sequence.room, 0);
  return cache_.reserve(sequence.pages, sequence.computed, sequence.computed + count);
}

// Where windows must be whole they follow one another without a gap from the first token on, whatever happens to the
// sequence in between: what it lacks is computed up to its last token, and that begins the next one.
int Scheduler::rows_of_window(Sequence& sequence, int spare) {
  const int lacks = sequence.remaining(), begin = sequence.computed;
  if (lacks > 1) return cache_.step_end(begin, begin + std::min(lacks - 1, std::max(0, spare))) - begin;
  const int left = sequence.asked->max_tokens - sequence.chosen() - sequence.pending - 1;
  const int end = cache_.step_end(begin, begin + 1 + std::clamp(left, 0, limits_.max_drafts));
  const int drafts = end - begin - 1;
  if (drafts > spare || drafts > window_rows_) return 0;
  window_rows_ -= drafts;
  sequence.room = drafts;
  return 1 + drafts;
}

// Rows a sequence gets of the next step: what it lacks, as far as the spare budget goes, and drafts where they help.
int Scheduler::rows_for(Sequence& sequence, int spare) {
  int lacks = sequence.remaining(), begin = sequence.computed;
  const int wished = std::exchange(sequence.room, 0);
  if (lacks <= 0) return 0;
  if (sequence.fills) return lacks <= spare ? lacks : 0;
  if (limits_.whole_windows && sequence.chosen() + sequence.pending > 0) return rows_of_window(sequence, spare);
  if (lacks > 1) {
    // If another tenant waits that had less, it shall find its share of this step.
    const Sequence* other = first_waiting_;
    bool leave_some = other != nullptr && other != &sequence && other->tenant != sequence.tenant &&
                      other->tenant->served < sequence.tenant->served;
    int share = leave_some ? std::max(1, spare / active_tenants()) : spare;
    return cache_.step_end(begin, begin + std::min({lacks, share, spare}), sequence.pages.mark) - begin;
  }
  if (wished == 0) return 1;
  const int end = cache_.step_end(begin, begin + 1 + std::min(wished, std::max(0, spare)));
  // Nobody goes for the sake of guesses, and no page is taken for them that then lies idle.
  if (cache_.missing(sequence.pages, end, limits_.step_tokens) > cache_.room()) return 1;
  sequence.room = end - begin - 1;
  return 1 + sequence.room;
}

// Who may have guesses is who lacks one token and will want more; how many, the control says.
void Scheduler::hand_out_drafts(const Load& seen, int spare) {
  if (control_ == nullptr || limits_.max_drafts == 0) return;
  seats_.clear();
  seated_.clear();
  int rows = seen.decodes, prompts = 0;
  for (Sequence* sequence : running_) {
    const int lacks = sequence->remaining();
    if (lacks > 1) prompts += lacks;
    if (lacks != 1) continue;
    const int wanted = sequence->asked->max_tokens - sequence->chosen() - sequence->pending - 1;
    seats_.push_back({&sequence->history, std::clamp(wanted, 0, limits_.max_drafts)});
    seated_.push_back(sequence);
  }
  rows += std::min(prompts, std::max(0, spare));
  int most = std::max(0, spare - prompts);
  if (limits_.step_drafts > 0) most = std::min(most, limits_.step_drafts);
  control_->assign(seats_, rows, seen.decodes, most);
  for (size_t i = 0; i < seats_.size(); ++i) seated_[i]->room = std::min(seats_[i].room, seats_[i].limit);
}

// A pass, or tokens that are kept from now on: the same rows whoever else is in the step.
void Scheduler::plan_fill(StepPlan& plan, Sequence& sequence) {
  const FillStep step = next_fill(sequence.shape, sequence.computed, sequence.pass);
  const bool passes = step.pass >= 0;
  plan.work.push_back({.sequence = &sequence,
                       .begin = step.begin,
                       .count = step.count,
                       .samples = passes,
                       .residence = sequence.residence,
                       .attempt = sequence.attempt,
                       .fill = step});
  plan.tokens += step.count;
  plan.context += int64_t{step.count} * (step.begin + step.count);
  if (!passes) sequence.computed = step.begin + step.count;
  sequence.pass += passes;
  sequence.pending += passes;
  ++sequence.in_flight;
  sequence.tenant->served += step.count;
}

void Scheduler::plan_work(StepPlan& plan, Sequence& sequence, int count) {
  if (sequence.fills) return plan_fill(plan, sequence);
  const int drafts = std::exchange(sequence.room, 0);
  bool samples = count - drafts == sequence.remaining();
  plan.work.push_back({&sequence, sequence.computed, count, drafts, samples, sequence.residence, sequence.attempt});
  plan.tokens += count;
  plan.context += int64_t{count} * sequence.computed + int64_t{count} * (count + 1) / 2;
  sequence.computed += count + (PLANTED(chunk_skips_a_token) && !samples && sequence.remaining() > count + 1);
  if (PLANTED(planned_past_drafts)) sequence.computed -= drafts;
  sequence.pending += samples;
  ++sequence.in_flight;
  sequence.tenant->served += count;
}

// The tokens a step chose for a sequence become known: the drafts it agreed with, and one more.
void Scheduler::land(Sequence& sequence, const Work& work, const SampledRow& row, double now,
                     std::vector<Event>& events) {
  bool resident = sequence.residence == work.residence;
  if (resident || !PLANTED(pending_forgotten)) --sequence.pending;
  if (row.error) {
    events.push_back({sequence.request, sequence.choice, std::nullopt, std::nullopt, Finish::failed, row.error});
    return finish(sequence, Finish::failed, now);
  }
  if (sequence.fills) {
    ++metrics_.fill_passes;
    metrics_.filled_tokens += work.fill.take;
    if (row.tokens.empty()) return;  // nothing is fixed with all before it
  } else {
    land_drafts(sequence, work, row);
  }
  tell(sequence, row, now, events);
}

void Scheduler::land_drafts(Sequence& sequence, const Work& work, const SampledRow& row) {
  int accepted = static_cast<int>(row.tokens.size()) - 1;
  CHECK(accepted >= 0 && accepted <= row.drafted && row.drafted <= work.drafts, "{} tokens for {} of {} drafts",
        row.tokens.size(), row.drafted, work.drafts);
  if (row.drafted > 0) note_drafts(sequence, work, row, accepted);
  if (sequence.residence == work.residence && accepted < work.drafts && !PLANTED(draft_kept)) {
    sequence.computed = cache_.rollback(sequence.pages, work.begin + work.count - work.drafts + accepted);
    sequence.committed = sequence.computed;
  }
}

void Scheduler::tell(Sequence& sequence, const SampledRow& row, double now, std::vector<Event>& events) {
  OpenRequest& asked = requests_.at(sequence.request);
  if (sequence.chosen() == 0 && asked.first_token < 0) asked.first_token = now;
  if (sequence.chosen() == 0) metrics_.prompt_tokens += static_cast<int64_t>(sequence.asked->prompt.size());
  const bool bound = sequence.asked->constraint != nullptr;
  if (bound && sequence.chosen() == 0) ++metrics_.bound_answers;
  Finish how = Finish::none;
  for (size_t index = 0; index < row.tokens.size() && how == Finish::none; ++index) {
    Token token = row.tokens[index];
    if (!sequence.times.empty()) metrics_.between_tokens.add(now - sequence.times.back());
    sequence.tokens.push_back(token);
    sequence.times.push_back(now);
    ++metrics_.generated_tokens;
    metrics_.bound_tokens += bound;
    const auto& stops = sequence.asked->stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) != stops.end())
      how = Finish::stop;
    else if (sequence.chosen() >= sequence.asked->max_tokens)
      how = Finish::length;
    Event event{sequence.request, sequence.choice, token, std::nullopt, how, std::nullopt, sequence.reused};
    if (index < row.logprobs.size()) event.logprobs = row.logprobs[index];
    if (index < row.mus.size()) event.mu = row.mus[index];
    events.push_back(std::move(event));
  }
  if (how != Finish::none) finish(sequence, how, now);
}

void Scheduler::note_drafts(Sequence& sequence, const Work& work, const SampledRow& row, int accepted) {
  if (control_ != nullptr)
    control_->landed(sequence.history,
                     {.room = work.drafts, .drafted = row.first_drafted, .along = row.along, .accepted = accepted});
  ++metrics_.draft_windows;
  metrics_.drafted_tokens += row.drafted;
  metrics_.accepted_drafts += accepted;
  for (int depth = 0; depth < std::min(row.drafted, DraftHistory::kDepths); ++depth) {
    ++metrics_.drafted_at[static_cast<size_t>(depth)];
    metrics_.accepted_at[static_cast<size_t>(depth)] += depth < accepted;
  }
}

void Scheduler::note_now() {
  metrics_.running = static_cast<int>(running_.size());
  metrics_.waiting = static_cast<int>(waiting_.size());
  metrics_.pages_used = cache_.pool().used();
  metrics_.pages_free = cache_.pool().free();
  metrics_.pages_cached = cache_.tree().evictable();
  metrics_.second_pages_used = cache_.second().used();
}

void Scheduler::note_step(const StepPlan& plan, const Sampled& sampled, double now) {
  int rows = plan.tokens, deepest = 0;
  for (size_t index = 0; index < plan.work.size(); ++index) {
    rows -= plan.work[index].drafts - std::max(sampled.rows[index].drafted, sampled.rows[index].draft_rows);
    deepest = std::max(deepest, sampled.rows[index].drafted);
  }
  ++metrics_.steps;
  metrics_.computed_tokens += rows;
  metrics_.draft_seconds += sampled.draft_seconds;
  metrics_.step_seconds.add(sampled.seconds);
  metrics_.shortlist_rows += sampled.shortlist_rows;
  metrics_.whole_rows += sampled.whole_rows;
  metrics_.unsettled_rows += sampled.unsettled_rows;
  metrics_.step_tokens.add(rows);
  metrics_.step_sequences.add(static_cast<double>(plan.work.size()));
  metrics_.last_event = now;
  if (!plan.work.empty()) {
    step_time_.observe({rows, plan.context, static_cast<int>(plan.work.size())}, sampled.seconds);
    if (control_ != nullptr) control_->ran(rows, deepest, sampled.seconds, sampled.draft_seconds);
    const auto& costs = step_time_.coefficients();
    if (step_time_.trained()) cache_.set_costs({costs.token, costs.context, limits_.page_move_seconds});
  }
  note_now();
  KvUse use;
  for (const Sequence* sequence : running_) {
    KvUse own = cache_.use(sequence->pages, sequence->fills ? sequence->shape.total() : sequence->computed);
    use.reserved_bytes += own.reserved_bytes;
    use.used_bytes += own.used_bytes;
  }
  metrics_.kv_reserved_bytes = use.reserved_bytes;
  metrics_.kv_used_bytes = use.used_bytes;
  if (use.reserved_bytes > 0)
    metrics_.kv_waste_sum += 1 - static_cast<double>(use.used_bytes) / static_cast<double>(use.reserved_bytes);
}

}  // namespace millrace
