// An engine whose ranks are the processes of an MPI job. The process that a server starts as its engine runs mpirun,
// and the job's first rank takes its place: it is handed the files that lead to the server. Ends the process or the
// job, so does the other. That first rank must run on this machine. Main thread, before there are others.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct MpiLaunch {
  int ranks = 2;
  std::string hostfile;  // empty: this machine alone
  std::string options;   // more words for mpirun
};

// Of this process in its MPI job; -1: mpirun has not started it.
int rank_by_launcher();

// Runs this program with `words` as every rank, hands the engine's files to the first, and waits. mpirun's exit code.
Result<int> run_mpi_engine(const MpiLaunch& launch, const std::vector<std::string>& words);

// First rank: puts the engine's files where engine_child.h says.
Result<void> take_engine_files();

}  // namespace millrace
