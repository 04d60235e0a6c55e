#include "backend/mpi/mpi_comm.h"

namespace millrace {

Result<MpiJob> join_mpi() {
  return error(Code::unsupported,
               "this build has no MPI: configure with -DMILLRACE_MPI=ON (libopenmpi-dev), or use --transport threads");
}

}  // namespace millrace
