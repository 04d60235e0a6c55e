// A model over several ranks, as whoever runs it sees it: a backend and a model, rank 0's. The other ranks are threads
// of this process that follow (engine/ranks.h), each with its part of the model on a backend of its own; or, under
// mpirun, other processes. Made and ended on one thread; executors on the backend must be gone before it ends.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "backend/comm.h"
#include "backend/cpu/cpu.h"
#include "backend/ranks/ranks.h"
#include "base/result.h"
#include "model/model.h"

namespace millrace {

struct RankChoice {
  std::string device = "cpu";  // as open_device (device.h) takes it
  CpuOptions cpu = {};         // threads: of all ranks of this process together
  int ranks = 1;
  bool mpi = false;                // ranks are the processes of this MPI job; `ranks` 1 or as many
  int64_t memory_limit = 0;        // bytes over all ranks of this process; 0: none
  RankCut cut = RankCut::outputs;  // what of the model each has; ranks of layers work one after the other
};

inline constexpr int kMostRanks = 64;

class Ranked {
 public:
  // Called for every rank of this process, one after the other, with its backend.
  using Make = std::function<Result<std::unique_ptr<Model>>(Backend& backend)>;
  // With one rank: a plain backend and no others. In a process of an MPI job that is not its first this does not
  // return: it follows until the first stops, and the process ends.
  static Result<std::unique_ptr<Ranked>> open(const RankChoice& choice, const Make& make);
  ~Ranked();

  Backend& backend() { return *members_[0].backend; }
  const Model& model() const { return *members_[0].model; }
  int ranks() const { return ranks_; }

  // What each rank of this process holds, by purpose; and bytes of activations that rank 0 has given to others.
  struct Held {
    int64_t weights = 0, kv = 0;
  };
  std::vector<Held> held() const;
  int64_t sent() const;

 private:
  struct Member {
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Model> model;
  };
  Ranked() = default;
  static Result<std::unique_ptr<Ranked>> open_mpi(const RankChoice& choice, const Make& make);
  void follow(Member& member);

  int ranks_ = 1;
  bool leads_ = false;  // others follow
  std::vector<Member> members_;
  std::vector<std::thread> followers_;
};

}  // namespace millrace
