// Scheduler: which tokens of whom are computed in the next step. It knows no phases: every sequence has known and
// computed tokens, and a step hands out a budget of tokens to close the gaps. It does no I/O and reads no clock, so the
// same calls give the same plans. Engine thread only.
//
//   submit  -> a Request becomes sequences that wait, or is refused with the numbers
//   next    -> a StepPlan. May be called once more before the step before it is committed (overlap): a sequence's next
//   token
//              is then computed from one that is chosen but not known here (Sequence::pending). Where guesses are on
//              their way nobody knows how many tokens will come, so that sequence waits for its commit
//   commit  -> what the step chose becomes known; Events for whoever waits
//
// Always: a step has at most its budget of tokens; a running sequence that lacks one token gets it in every step it is
// free to; a sequence keeps its answer whatever happens to its pages (preempted, moved out and back, lost, recomputed).
//
// Preemption gives a sequence's pages to the prefix tree. If nobody needs the room it finds them there again; if
// somebody does, the tree drops them or moves them to the second store, whichever is cheaper by the measured cost of a
// token.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "engine/draft/control.h"
#include "engine/metrics.h"
#include "engine/policy.h"
#include "engine/request.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"
#include "engine/step_time.h"

namespace millrace {

Result<void> check_limits(const Limits& limits);

class Scheduler {
 public:
  // Limits must be checked. The cache outlives the scheduler. Without a control there are no guesses.
  Scheduler(const Limits& limits, KvCache& cache, std::unique_ptr<Policy> policy,
            std::unique_ptr<DraftControl> control = nullptr);
  ~Scheduler();

  Result<RequestId> submit(Request request, double now);
  // Its answers end now and nothing more is said about them; the one named, if any, as one that stopped by itself,
  // since whoever listens has all it wants of it. False if there was none to end.
  bool cancel(RequestId request, double now, int choice = -1);
  StepPlan next(double now);
  // Whether the step in flight had better be committed before the next one is planned, which then has everybody in it:
  // those it guesses for cannot be planned before, and what would be two steps by turns takes longer than one, unless
  // many go on without guesses meanwhile.
  bool had_better_wait() const;
  std::vector<Event> commit(const StepPlan& plan, const Sampled& sampled, double now);

  bool idle() const { return requests_.empty(); }  // nobody waits for anything
  const Metrics& metrics() const { return metrics_; }
  void note_from_store(int64_t tokens) { metrics_.prefix_store_tokens += tokens; }  // that whoever asks will find
  const StepTime& step_time() const { return step_time_; }
  const Limits& limits() const { return limits_; }
  const Policy& policy() const { return *policy_; }
  std::vector<RequestRecord> take_records() { return std::exchange(records_, {}); }  // of requests that ended
  std::vector<const Sequence*> sequences() const;

  // The cache's check with every sequence, and that counters here agree with what is there.
  Result<void> check() const;

 private:
  struct OpenRequest {  // a request somebody waits for
    std::shared_ptr<const Request> request;
    std::vector<std::unique_ptr<Sequence>> answers;
    double arrived = 0, started = -1, first_token = -1;
    int open = 0;  // answers not finished
    Finish finish = Finish::none;
  };

  // scheduler.cpp
  int rows_for(Sequence& sequence, int spare);
  void hand_out_drafts(const Load& seen, int spare);
  int rows_of_window(Sequence& sequence, int spare);
  bool reserve(Sequence& sequence, int& count);
  void note_drafts(Sequence& sequence, const Work& work, const SampledRow& row, int accepted);
  void plan_work(StepPlan& plan, Sequence& sequence, int count);
  void plan_fill(StepPlan& plan, Sequence& sequence);
  void land_drafts(Sequence& sequence, const Work& work, const SampledRow& row);
  void tell(Sequence& sequence, const SampledRow& row, double now, std::vector<Event>& events);
  void land(Sequence& sequence, const Work& work, const SampledRow& row, double now, std::vector<Event>& events);
  void note_pause(const StepPlan& plan, double seconds, double now);
  void note_now();
  void note_step(const StepPlan& plan, const Sampled& sampled, double now);

  // scheduler_queue.cpp
  Load load(double now) const;
  Result<void> admissible(const Request& request, double now) const;
  Tenant& tenant(const std::string& name);
  static void resume(OpenRequest& asked, Sequence& sequence, double now);
  void order_running();
  void make_way(double now);
  Sequence* first_waiting(double now) const;
  int active_tenants() const;
  bool ready(const Sequence& sequence) const;
  int missing(const Sequence& sequence) const;  // pages to go on
  bool has_room(const Sequence& sequence) const;
  void admit(StepPlan& plan, int& spare, double now);
  int start(Sequence& sequence, int spare, bool reuse);
  int take_over(Sequence& sequence);
  void preempt(size_t index);
  void restart_failed(const StepPlan& plan, const Sampled& sampled);
  void finish(Sequence& sequence, Finish how, double now);
  void record(RequestId id, const OpenRequest& asked, double now);
  void leave(Sequence& sequence);  // no longer waiting or running

  Limits limits_;
  KvCache& cache_;
  std::unique_ptr<Policy> policy_;
  std::unique_ptr<DraftControl> control_;  // may be null
  std::vector<DraftControl::Seat> seats_;
  std::vector<Sequence*> seated_;
  // Between steps of which the later waited for the earlier, of late; and what it is measured by.
  double pause_ = 0, last_commit_ = 0, planned_at_ = 0;
  int flights_ = 0;       // planned and not committed
  int64_t alone_ = -1;    // the step that was planned with none in flight
  bool goes_on_ = false;  // there was more to do when the last step was committed
  int window_rows_ = 0;   // guesses that the step being planned still has room for, where windows are whole
  StepTime step_time_;
  Metrics metrics_;
  std::vector<RequestRecord> records_;
  std::map<RequestId, OpenRequest> requests_;
  std::vector<std::unique_ptr<Sequence>> ended_;  // finished with a step still in flight
  std::map<std::string, Tenant> tenants_;
  std::vector<Sequence*> running_, waiting_;
  const Sequence* first_waiting_ = nullptr;  // when this step was planned
  int64_t steps_ = 0;
  int64_t next_sequence_ = 0;
  RequestId next_request_ = 0;
  double served_floor_ = 0;    // served to the tenant that left last
  double mean_seconds_ = 0;    // that a sequence takes, of late
  bool out_of_pages_ = false;  // somebody was preempted in this step for want of pages
};

}  // namespace millrace
