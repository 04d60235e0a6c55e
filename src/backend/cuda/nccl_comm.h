// Ranks with a GPU each, whose rows NCCL moves from one GPU's memory to another's; it is never asked to add. Messages
// and what the host has go by another comm. The library is looked for when it is asked for (libnccl.so.2), so a program
// built with CUDA needs none to be built or to run without.
#pragma once

#include <memory>

#include "backend/comm.h"
#include "base/result.h"

namespace millrace {

// Refused where there is no NCCL. A rank for which it then fails ends the process: the others wait for it.
Result<std::shared_ptr<Comm>> make_nccl_comm(std::shared_ptr<Comm> other);

}  // namespace millrace
