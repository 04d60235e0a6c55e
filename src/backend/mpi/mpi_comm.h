// Ranks that are processes of one MPI job, on one machine or several: `mpirun -np N millrace ...`. MPI moves bytes and
// nothing else; it is never asked to add. Built with -DMILLRACE_MPI=ON, refused otherwise. A process that dies takes
// the job with it. One thread at a time calls it.
#pragma once

#include <memory>

#include "backend/comm.h"
#include "base/result.h"

namespace millrace {

struct MpiJob {
  std::shared_ptr<Comm> comm;  // ends MPI with it
  int ranks_here = 1;          // of this machine
  int rank_here = 0;
};

// Once in a process.
Result<MpiJob> join_mpi();

}  // namespace millrace
