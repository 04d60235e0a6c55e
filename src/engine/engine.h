// Engine: many requests, one model. It has a thread of its own that plans steps, has them run, and tells whoever waits.
//
//   Request  -> Sequence   submit    engine thread   admission: fits, or an honest refusal
//   Sequence -> StepPlan   next      engine thread   host only, pure
//   StepPlan -> Launch     take      engine thread   what the step needs, copied
//   Launch   -> Sampled    run       runner          moves, forward, sampling
//   Sampled  -> Event      commit    engine thread
//   Event    -> listener   tell      engine thread   once a step and request
//
// With overlap the runner has a thread too: step n+1 is planned while step n computes, and what step n chose is told
// while step n+1 computes. An answer's tokens are the same either way, and the same as if it ran alone (contract 1).
//
// submit() and cancel() may be called from any thread and return at once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/cache_writing.h"
#include "engine/page_states.h"
#include "engine/parts.h"
#include "engine/port.h"

namespace millrace {

struct Adapter;

// Listeners are called on the engine thread.
class Engine : public EnginePort {
 public:
  // The model and the backend outlive the engine. Everything is planned and taken here.
  static Result<std::unique_ptr<Engine>> create(const Model& model, Backend& backend, const EngineOptions& options);
  ~Engine() override;  // cancels what is open without telling
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  RequestId submit(Request request, Listener listener, bool tell_admission = false) override;
  void when_told(std::function<void()> told) override { told_ = std::move(told); }
  void cancel(RequestId request, int choice = -1) override;
  void when_cached(std::function<void(std::vector<CacheChange>)> heard) override { cached_ = std::move(heard); }
  const EngineFacts& facts() const override { return facts_; }
  using Snapshot = EngineSnapshot;
  Snapshot snapshot() const override;
  std::vector<PageState> watch_pages() override;
  std::vector<AdapterInfo> adapters() const override;
  void load_adapter(AdapterAsk ask, std::function<void(Result<AdapterInfo>)> done) override;
  void unload_adapter(std::string name, std::function<void(Result<void>)> done) override;
  void save_cache(int file, CacheDone done) override;
  void reset_cache(CacheDone done) override;
  // Adds what a file has of the same identity; an error changes nothing. Waits; before the first request.
  Result<CacheFileSummary> restore_cache(const std::filesystem::path& path);
  std::vector<RequestRecord> take_records();  // of requests that ended since the last call

  const EngineOptions& options() const { return parts_.options; }
  const Executor& executor() const { return *parts_.executor; }

 private:
  struct Inbox {
    struct Item {
      RequestId id = 0;
      std::optional<Request> request;  // none: cancel
      Listener listener;
      double arrived = 0;
      bool tell_admission = false;
      int choice = -1;                    // to cancel; -1: all
      std::function<void()> change = {};  // of adapters or pages: done when no step runs; then the rest is empty
      bool asked_tier = false;
    };
    std::vector<Item> items;
    bool stopping = false;
  };
  struct Open {
    RequestId id = 0;  // as the caller knows it
    Listener listener;
    int unfinished = 0;
    int adapter = -1;                            // its place
    std::shared_ptr<const Request> offers = {};  // whose prompt is offered to others at the end; null: nobody's
  };

  explicit Engine(EngineParts parts);
  double now() const;
  void loop();
  void run_in_turn();          // plan, run, tell
  void run_overlapped();       // plan the next while the runner runs
  bool take_inbox(bool wait);  // false: stop
  void admit(Inbox::Item& item);
  void drop(const Inbox::Item& item);
  void run(Flight& flight);
  void land(Flight& flight);
  void tell(std::span<const Event> events);
  void note_progress();
  // Adapters, in engine_adapters.cpp; engine thread.
  Result<AdapterInfo> install(const AdapterAsk& ask, const Adapter& adapter);
  Result<void> remove(const std::string& name);
  Result<void> choose_adapter(Request& request) const;
  void leave(int adapter);  // one request fewer has it
  void settle();            // until no step runs
  void clear_places();      // of adapters that are unloaded and that no request has
  void post_change(std::function<void()> change);
  // Pages outside, in engine_tier.cpp.
  bool ask_tier(Inbox::Item& item);
  void take_in(const Request& request, int first, std::span<const TierNode> nodes);
  void carry_out_now();
  void offer(const Request& request);
  void tell_changes();
  void rest();
  void queue(Flight& flight);  // behind the one that runs
  void await(Flight& flight);
  void runner_loop();

  EngineParts parts_;
  EngineFacts facts_;
  std::function<void()> told_;
  std::function<void(std::vector<CacheChange>)> cached_;
  std::chrono::steady_clock::time_point start_;

  // Engine thread only.
  std::map<RequestId, Open> open_;      // by the scheduler's id
  std::map<RequestId, RequestId> ids_;  // the caller's to the scheduler's
  std::vector<RequestId> ended_;        // to be forgotten by the runner
  Flight* before_ = nullptr;            // overlapped only: queued or running
  std::map<int, int> users_;            // open requests by the adapter's place
  std::vector<CacheChange> changes_;    // of the tree, not told yet
  std::set<RequestId> held_;            // requests that wait for the tier
  std::set<Identity> offered_;          // chains the tier has, or was given
  std::vector<int> leaving_;            // places of adapters that are unloaded, and still used perhaps
  double busy_since_ = 0, running_seconds_ = 0, busy_seconds_ = 0;

  mutable std::mutex mutex_;  // guards the six below
  std::condition_variable arrived_;
  Inbox inbox_;
  Snapshot shown_;
  std::vector<RequestRecord> records_;
  std::vector<PageState> pages_shown_;
  struct Loaded {
    AdapterInfo info;
    int place = -1;
  };
  std::vector<Loaded> adapters_;  // changed on the engine thread only
  std::atomic<bool> pages_wanted_{false};
  std::atomic<RequestId> next_id_{1};

  // Handing a step to the runner and back.
  std::mutex turn_mutex_;
  std::condition_variable turn_;  // also for Flight::done
  Flight* queued_ = nullptr;
  bool runner_stops_ = false;

  CacheWriting writing_{[this](std::function<void()> task) { post_change(std::move(task)); }};
  std::thread runner_thread_, thread_;
};

}  // namespace millrace
