// An engine's process with a tiny model and a planted mistake: it crashes as soon as it is to compute a certain token.
#pragma once

#include "base/token.h"

namespace millrace {

inline constexpr Token kPoison = 299;

int be_planted_engine(const char* model);  // returns when the server is gone

}  // namespace millrace
