// Ranks, planned (docs/ranks.md): what each of several ranks of this program would hold, send and take. Nothing is
// written down as a formula: memory is what executors on ranks plan, work and messages are those of forward() over the
// Ops of a rank with a Comm that only counts. Time is the roofline's for a rank's share of the machine, and what a link
// takes for the messages. Pure; one thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/ranks/ranks.h"
#include "machine/link.h"
#include "plan/capacity.h"

namespace millrace {

struct RanksChoice {
  int ranks = 2;
  RankCut cut = RankCut::outputs;
  int here = 1;  // ranks that share one machine's ceilings
};

// One pass of one rank, counted.
struct RankCount {
  std::vector<OpCall> calls;
  std::vector<TraceRecord> records;  // of the calls
  int64_t exchanges = 0;             // and one for rank 0's word what to do
  int64_t sent = 0, received = 0;    // bytes of columns; with whole layers of rows too
  // Bytes of embedded tokens: whoever has a token's row sends it, so a rank sends between nothing and all of them.
  int64_t embedded = 0;

  double likely_sent(int ranks) const { return static_cast<double>(sent) + static_cast<double>(embedded) / ranks; }
};

// A pass as all ranks do it together.
struct RanksPass {
  Floor floor;  // of the rank that works longest; with whole layers of all, one after another
  double exchanges = 0;
  double sent = 0;   // bytes of the rank that sends most
  double moved = 0;  // bytes that a rank waits for
  double link_seconds = 0;

  double seconds() const { return floor.seconds + link_seconds; }
  RanksPass& operator+=(const RanksPass& other);
};

class RanksPlanner {
 public:
  // `like` as make_trace_backend takes it; it outlives the planner. Refused as ranks themselves are.
  static Result<RanksPlanner> create(const ModelSpec& spec, const FormOf& form_of, const Backend* like,
                                     const RanksChoice& choice);
  RanksPlanner(RanksPlanner&&) noexcept;
  RanksPlanner& operator=(RanksPlanner&&) noexcept;
  ~RanksPlanner();

  const RanksChoice& choice() const { return choice_; }
  // Of each rank, for an executor of these options.
  Result<std::vector<MemoryPlan>> memory(const ExecutorOptions& options) const;
  RankCount count(int rank, const KvForm& kv, std::span<const PassRows> rows) const;
  RanksPass pass(const KvForm& kv, std::span<const PassRows> rows, const Ceilings& ceilings, const Link& link) const;

 private:
  struct Member;
  RanksPlanner() = default;

  RanksChoice choice_;
  std::vector<Member> members_;
};

}  // namespace millrace
