// One rank of several: a backend over another that keeps this rank's outputs of every matrix and this rank's heads of
// the cache, and whose Ops compute those and gather the rest. Inputs are whole on every rank, so every number is the
// one a single rank computes, bit for bit; all ranks must run the same steps (engine/ranks.h). Weights keep their whole
// shape; what they point to is this rank's part (ranks/share.h).
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/comm.h"

namespace millrace {

// Refused on a machine apart.
Result<std::unique_ptr<Backend>> make_rank_backend(std::unique_ptr<Backend> inner, std::shared_ptr<Comm> comm);

// The ranks that run the same steps with a backend; null: it is no rank.
Comm* comm_of(const Backend& backend);
// The backend that computes: the one below a rank, or itself.
const Backend& below(const Backend& backend);

}  // namespace millrace
