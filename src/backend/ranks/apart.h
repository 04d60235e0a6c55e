// Ranks on machines apart: what make_rank_backend (ranks/ranks.h) is for those whose rows the host reads. The Ops of
// the backend must have a Reach (backend/reach.h).
#pragma once

#include <memory>

#include "backend/ranks/ranks.h"

namespace millrace {

std::unique_ptr<Backend> make_apart_rank_backend(std::unique_ptr<Backend> inner, std::shared_ptr<Comm> comm,
                                                 RankCut cut = RankCut::outputs);

}  // namespace millrace
