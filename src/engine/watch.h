// EngineWatch: somebody outside who must know at any moment that an engine is alive, and what it was at when it was
// not: who takes part in the step that runs, how long that may take, and the figures so far. What it is told must cost
// next to nothing.
#pragma once

#include <cstdint>

namespace millrace {

struct EngineSnapshot;
struct Launch;

class EngineWatch {
 public:
  virtual ~EngineWatch() = default;
  virtual void awake() = 0;                            // engine thread, twice a second at least between steps
  virtual void step_begins(const Launch& launch) = 0;  // on the thread that runs it
  virtual void step_ended(int64_t failed) = 0;         // likewise; steps so far that a machine apart did not do
  // On the engine thread, while no step runs: something is put in place or taken out, which may take long.
  virtual void change_begins() = 0;
  virtual void change_ended() = 0;
  virtual void shown(const EngineSnapshot& snapshot) = 0;  // engine thread, whenever figures change
};

}  // namespace millrace
