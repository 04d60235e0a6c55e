// EnginePort: an engine as whoever serves sees it: requests in, what became of them out, and figures to look at. The
// Engine is one in this process; src/process has one that lives in a process of its own. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/cache_change.h"
#include "cache/cache_summary.h"
#include "cache/page_tier.h"
#include "engine/metrics.h"
#include "engine/page_states.h"
#include "engine/policy.h"
#include "engine/step_plan.h"

namespace millrace {

// Told what became of a request: the events of one step, in order. Called on one thread of the engine's; it must not
// block and must not end the engine. The last call has an event that finishes the last answer, or carries a refusal.
using Listener = std::function<void(std::span<const Event> events)>;

// What holds as long as the engine does.
struct EngineFacts {
  Limits limits;
  int32_t pages = 0;  // of the cache
  int32_t page_tokens = 0;
  int32_t node_tokens = 0;  // of the prefix cache: what is found or not
  int32_t vocab = 0;        // tokens the model knows
  double token_bytes = 0;   // of the cache, for one token
  int64_t bytes = 0;        // that it has taken: weights, cache, workspace, a spare
};

struct EngineSnapshot {
  Metrics metrics;
  double now = 0;              // seconds since the engine started
  double last_progress = 0;    // when a step was last done or there was nothing to do
  double outside_seconds = 0;  // spent between steps while there was work
  int pages = 0;
  int64_t swap_bytes = 0;
  int process = 0;      // its process, if it has one of its own
  int restarts = 0;     // processes that died and were replaced
  bool present = true;  // false while one is being replaced; requests wait for it
  TierCounters tier;    // of pages outside; of this process alone
  bool paused = false;  // requests wait until it goes on
  bool asleep = false;  // the same, and its memory is given back
};

// An adapter that is to be loaded: a file or directory that the engine can read.
struct AdapterAsk {
  std::string name;
  std::string path;
  float strength = 1;               // of requests that say nothing about it
  std::optional<Identity> content;  // refused if it turns out to be anything else
};

// One that is loaded.
struct AdapterInfo {
  std::string name, path;
  float strength = 1;
  int32_t rank = 0;   // the largest of its matrices'
  int64_t bytes = 0;  // on the backend
  Identity content;   // of what it changes and how
};

class EnginePort {
 public:
  virtual ~EnginePort() = default;

  // Returns at once. With `tell_admission` the listener is called once without events as soon as the request is in the
  // queue.
  virtual RequestId submit(Request request, Listener listener, bool tell_admission = false) = 0;
  // Nothing more is told about the request; unknown ids are fine. If one answer is named, only that one ends, and it
  // counts as stopped: its listener has found what it was waiting for. Returns at once.
  virtual void cancel(RequestId request, int choice = -1) = 0;
  // Called when all listeners of a step have been told, and after admissions: what they put aside can be passed on at
  // once. Set it before the first request.
  virtual void when_told(std::function<void()> told) = 0;

  // Called after a step with what became of the prefix cache in it, where the engine was made to tell (EngineOptions).
  // Set it before the first request. One thread of the engine's; it must not block.
  virtual void when_cached(std::function<void(std::vector<CacheChange>)> heard) { static_cast<void>(heard); }

  virtual const EngineFacts& facts() const = 0;
  virtual EngineSnapshot snapshot() const = 0;
  // Why no request can be answered, if so. It may pass.
  virtual std::optional<Error> failing() const { return {}; }
  // What each page was there for when the engine last looked, and a wish that it look again soon: it does so after its
  // next step, once a wish, so that nobody watching costs nothing. Empty until it has looked.
  virtual std::vector<PageState> watch_pages() = 0;

  // Adapters (LoRA), in the order they came. Loading reads the file at once and may take a while; unloading lets
  // requests that have the adapter end with it, and no new ones begin. `done` is called once, on any thread, perhaps
  // before the call returns.
  virtual std::vector<AdapterInfo> adapters() const { return {}; }
  virtual void load_adapter(AdapterAsk ask, std::function<void(Result<AdapterInfo>)> done);
  virtual void unload_adapter(std::string name, std::function<void(Result<void>)> done);

  // The prefix cache into a file that is open for writing, as cache/cache_file.h has it; answers go on meanwhile.
  // `file` stays open until `done` was called: once, on any thread, perhaps before the call returns.
  using CacheDone = std::function<void(Result<CacheFileSummary>)>;
  virtual void save_cache(int file, CacheDone done);
  // Forgets prefixes that no open request uses; nodes is how many.
  virtual void reset_cache(CacheDone done);

  // Open requests stand still, and new ones wait, until go_on(); what they say is the same as without.
  virtual Result<void> pause();
  // The same, and the memory is given back.
  virtual Result<void> sleep();
  virtual void go_on() {}
  // Open requests go on in the other engine, from the tokens already told, and new ones begin there: other weights, the
  // same limits. Waits until that is so. The other has no requests and nobody else uses it any more.
  virtual Result<void> become(std::shared_ptr<EnginePort> other);
};

}  // namespace millrace
