#include "engine/policy.h"

#include <algorithm>
#include <climits>
#include <cmath>

namespace millrace {
namespace {

bool arrived_before(const Sequence& a, const Sequence& b) {
  return a.arrived != b.arrived ? a.arrived < b.arrived : a.id < b.id;
}

bool turn_before(const Sequence& a, const Sequence& b) {
  if (a.tenant != b.tenant && a.tenant->served != b.tenant->served) return a.tenant->served < b.tenant->served;
  return arrived_before(a, b);
}

class Fcfs : public Policy {
 public:
  std::string_view name() const override { return "fcfs"; }
  bool before(const Sequence& a, const Sequence& b, double) const override { return turn_before(a, b); }
};

class Priority : public Policy {
 public:
  std::string_view name() const override { return "priority"; }
  bool before(const Sequence& a, const Sequence& b, double now) const override {
    int first = aged(a, now), second = aged(b, now);
    return first != second ? first > second : turn_before(a, b);
  }
  // Whoever was sent away twice stays.
  int rank(const Sequence& sequence) const override {
    return sequence.preemptions >= 2 ? INT_MAX : sequence.asked->priority;
  }

 private:
  static constexpr double kAgingSeconds = 10;  // of waiting are worth one step of priority
  static int aged(const Sequence& sequence, double now) {
    double waited = std::clamp((now - sequence.arrived) / kAgingSeconds, 0.0, 1e6);
    return std::clamp(sequence.asked->priority, -1000000, 1000000) + static_cast<int>(waited);
  }
};

class Static : public Policy {
 public:
  std::string_view name() const override { return "static"; }
  bool before(const Sequence& a, const Sequence& b, double) const override { return arrived_before(a, b); }
  bool takes_turns() const override { return false; }
  // The batch is open until somebody in it has a token.
  bool admits(const Load& load) const override {
    return std::all_of(load.running.begin(), load.running.end(),
                       [](const Sequence* sequence) { return sequence->chosen() == 0; });
  }
};

// Latency targets. Everything here is an estimate from StepTime; until that has seen a few steps, this is fcfs.
class Slo : public Policy {
 public:
  std::string_view name() const override { return "slo"; }

  // The nearest deadline first. Whoever has just missed it lets those go who can still meet theirs, but not for long.
  bool before(const Sequence& a, const Sequence& b, double now) const override {
    if (a.tenant != b.tenant && a.tenant->served != b.tenant->served) return a.tenant->served < b.tenant->served;
    bool late_a = just_missed(a, now), late_b = just_missed(b, now);
    if (late_a != late_b) return late_b;
    double first = deadline(a), second = deadline(b);
    return first != second ? first < second : arrived_before(a, b);
  }

  // As many prompt tokens beside the decodes as the most impatient running sequence can bear. A step is never so short
  // that prompts stand still.
  int budget(const Load& load) const override {
    int most = load.limits->step_tokens;
    double bearable = bearable_step(load);
    if (!load.time->trained() || !std::isfinite(bearable)) return most;
    double spent = load.time->predict({load.decodes, load.decode_context, static_cast<int>(load.running.size())});
    double token =
        std::max(1e-12, load.time->coefficients().token + mean_context(load) * load.time->coefficients().context);
    double prompts = std::clamp((kMargin * bearable - spent) / token, static_cast<double>(kLeastPrompt), 1e9);
    return static_cast<int>(std::min<double>(most, load.decodes + prompts));
  }

  // No more sequences than can all have their next token in time.
  bool admits(const Load& load) const override {
    if (!load.time->trained() || load.running.empty()) return true;
    return static_cast<int>(load.running.size()) < most_sequences(load, least_target(load));
  }

  std::optional<double> too_long(const Load& load, const Targets& targets, int tokens) const override {
    if (targets.first_token <= 0 || !load.time->trained()) return std::nullopt;
    double wait = predicted_wait(load, tokens, targets.next_token);
    if (wait <= kFirstMargin * targets.first_token) return std::nullopt;
    return wait;
  }

 private:
  static constexpr double kMargin = 0.9;       // of a target is planned for; the rest is for what the estimate misses
  static constexpr double kFirstMargin = 0.8;  // the same for first tokens: who comes later makes steps longer
  static constexpr int kLeastPrompt = 16;      // prompt tokens a step, whatever the targets say

  static double deadline(const Sequence& sequence) {
    double target = sequence.asked->targets.first_token;
    return sequence.arrived + (target > 0 ? target : 60);
  }

  static bool just_missed(const Sequence& sequence, double now) {
    double target = sequence.asked->targets.first_token, over = now - deadline(sequence);
    return target > 0 && sequence.chosen() == 0 && over > 0 && over < 10 * target;
  }

  static double least_target(const Load& load) {
    double least = INFINITY;
    for (const Sequence* sequence : load.running)
      if (double target = sequence->asked->targets.next_token; target > 0) least = std::min(least, target);
    return least;
  }

  // How long the step may take: the least target of those decoding. If the longest waiting is about to miss its own,
  // what the decoding ones are ahead of their schedule may be spent too.
  static double bearable_step(const Load& load) {
    double target = INFINITY, slack = INFINITY;
    for (const Sequence* sequence : load.running) {
      double wanted = sequence->asked->targets.next_token;
      if (wanted <= 0 || sequence->times.empty()) continue;
      target = std::min(target, wanted);
      double due = sequence->times.front() + wanted * static_cast<double>(sequence->times.size());
      slack = std::min(slack, due - load.now);
    }
    const Sequence* waiting = load.longest_waiting;
    if (waiting == nullptr || waiting->asked->targets.first_token <= 0) return target;
    double left = deadline(*waiting) - load.now;
    double needed = load.time->predict({waiting->remaining(), 0, 1});
    return left < 2 * needed ? std::max(target, slack) : target;
  }

  static double mean_context(const Load& load) {
    return load.decodes > 0 ? static_cast<double>(load.decode_context) / load.decodes : 0;
  }

  // Sequences whose decodes together take no longer than the target.
  static int most_sequences(const Load& load, double target) {
    if (!std::isfinite(target)) return load.limits->max_sequences;
    const auto& c = load.time->coefficients();
    double each = c.token + c.sequence + c.context * mean_context(load);
    double room = kMargin * target - c.fixed;
    if (each <= 0) return load.limits->max_sequences;
    return std::clamp(static_cast<int>(room / each), 1, load.limits->max_sequences);
  }

  // Prompts ahead and its own, at the pace the decodes leave; and, if all places are taken, the time until enough are
  // free. Those in the queue who have just missed their target let it pass, so they do not count.
  static double predicted_wait(const Load& load, double prompt, double next_target) {
    double target = std::min(least_target(load), next_target > 0 ? next_target : INFINITY);
    int places = most_sequences(load, target), here = static_cast<int>(load.running.size()) + load.waiting;
    double ahead = static_cast<double>(load.prompt_tokens);
    for (const Sequence* sequence : load.queue) {
      if (!just_missed(*sequence, load.now)) continue;
      --here;
      ahead -= sequence->choice == 0 ? sequence->remaining() : 1;
    }
    double spent = load.time->predict({load.decodes, load.decode_context, static_cast<int>(load.running.size())});
    double token = std::max(1e-12, load.time->coefficients().token);
    double rows = load.limits->step_tokens - load.decodes;
    if (std::isfinite(target))
      rows = std::min(rows, std::max<double>(kLeastPrompt, (kMargin * target - spent) / token));
    rows = std::max(rows, 1.0);
    double steps = std::ceil((ahead + prompt) / rows);
    double wait = (ahead + prompt) * token + steps * spent;
    if (here >= places && load.mean_seconds > 0) wait += (here - places + 1) * load.mean_seconds / places;
    return wait;
  }
};

}  // namespace

Result<std::unique_ptr<Policy>> make_policy(std::string_view name) {
  std::unique_ptr<Policy> policy;
  if (name == "fcfs") policy = std::make_unique<Fcfs>();
  if (name == "priority") policy = std::make_unique<Priority>();
  if (name == "slo") policy = std::make_unique<Slo>();
  if (name == "static") policy = std::make_unique<Static>();
  if (!policy) return error(Code::invalid, "there is no policy '{}': choose fcfs, priority, slo or static", name);
  return policy;
}

}  // namespace millrace
