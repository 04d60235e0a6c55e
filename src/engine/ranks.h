// One model over several ranks (backend/ranks), led by the first. Only rank 0 has requests, a scheduler, the cache's
// books and a sampler; whatever its executors do (being made, page moves, steps) it tells the others before it does it,
// and they do the same on their part. So whoever uses an executor need not know of ranks.
//
//   rank 0   executor ---- made, step, moves, ... ---->   other ranks   follow_ranks
//            the step's ops gather (backend/comm.h)       the same ops
//
// A rank that cannot go on ends the process: the others wait for it in the middle of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/comm.h"
#include "base/result.h"
#include "cache/spec.h"

namespace millrace {

class Model;
struct Chunk;
struct ExecutorOptions;

// Rank 0's word to the others, for one executor; told by whoever runs that executor.
class RankLead {
 public:
  // Null where there are no other ranks, or this is not the first.
  static std::unique_ptr<RankLead> of(const Backend& backend);
  ~RankLead();  // the others drop theirs
  RankLead(const RankLead&) = delete;
  RankLead& operator=(const RankLead&) = delete;

  // The others make such an executor, or a second store for it; then all say whether they could.
  void make(const Model& model, const ExecutorOptions& options);
  void make_second(int pages, int64_t budget);
  Result<void> made(bool here);

  void step(std::span<const Chunk> chunks);
  void moves(std::span<const PageMove> moves);
  void copies(std::span<const PageCopy> copies);

 private:
  explicit RankLead(Comm& comm) : comm_(comm), number_(comm.next_number()) {}

  Comm& comm_;
  int32_t number_;
  bool told_ = false;  // the others have heard of it
  std::vector<std::byte> message_;
};

// What every rank but the first does with its part of the model, until it is told to stop. An error is a message that
// cannot be: the job is over.
Result<void> follow_ranks(const Model& model, Backend& backend);
// Rank 0, when all executors are gone.
void stop_ranks(Comm& comm);

}  // namespace millrace
