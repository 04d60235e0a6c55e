// EngineParts: what steps need, made together so that they agree: the executor with its store, the second store, the
// cache's books, the scheduler and the runner, and a step through them. The Engine drives them with threads of its own,
// a replay under a clock of its own, a Generator (session/generator.h) on its caller's thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/page_tier.h"
#include "engine/port.h"
#include "engine/runner.h"
#include "engine/scheduler.h"
#include "engine/watch.h"

namespace millrace {

// Guessing ahead. By rule exact answers are the same with and without; how fast they come is not.
struct DraftOptions {
  DrafterMaker make;                  // none: no guesses
  int most = 4;                       // guesses of one answer in one step
  bool steady = false;                // always as many, instead of as many as pay
  int branches = 0;                   // other ways to go on that are tried beside
  BesideLayers beside;                // what is kept of every token in the target's pages for it
  DraftRule rule = DraftRule::exact;  // by any other answers differ from plain ones, and it is always as many
};

struct EngineOptions {
  ExecutorOptions executor;  // context, pages, KV format; rows and sequences follow from the limits
  Limits limits;             // context 0: the executor's
  std::string policy = "fcfs";
  int64_t swap_bytes = 0;  // host memory for pages moved out; 0: evicted pages are dropped
  bool overlap = true;
  DraftOptions draft;
  bool tell_cached = false;          // EnginePort::when_cached hears what becomes of the prefix cache
  std::shared_ptr<PageTier> tier;    // pages outside; null: none
  std::vector<AdapterAsk> adapters;  // loaded before the first request
  Identity identity;                 // of whatever decides the bytes of pages: a saved cache is kept under it
  EngineWatch* watch = nullptr;      // outlives the engine; null: nobody
  int64_t beside_bytes = 0;          // that its process has taken besides; part of EngineFacts::bytes
};

// A step on its way. Reused from step to step: once grown it allocates nothing.
struct Flight {
  StepPlan plan;
  Launch launch;
  Sampled sampled;
  bool done = false;  // for whoever has it run on another thread
};

struct EngineParts {
  EngineOptions options;  // zeros filled in
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Store> second;  // null if there is none
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Drafter> drafter;  // null if there is none
  std::unique_ptr<Runner> runner;

  // The model and the backend outlive the parts. Everything is planned and taken here.
  static Result<EngineParts> create(const Model& model, Backend& backend, const EngineOptions& options);

  // One step. It may be planned and landed on one thread while the one before it runs on another. Nothing is to be run
  // if the plan is empty. `ended`, which is taken, has the requests that ended: no step from this one on has them.
  void plan(Flight& flight, std::vector<RequestId>& ended, double now);
  void run(Flight& flight) { runner->run(flight.launch, flight.sampled); }
  std::vector<Event> land(Flight& flight, double now) { return scheduler->commit(flight.plan, flight.sampled, now); }
};

}  // namespace millrace
