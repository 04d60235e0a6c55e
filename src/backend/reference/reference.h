// The reference backend: what every op means, in the plainest float32. One thread, one value after the other; sums are
// kept in double and rounded once, so that it stands nearer to the real numbers than any fast backend and can judge
// them all. Weights stay in the file's format and are turned into float32 through the format table as they are read.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace millrace {

std::unique_ptr<Backend> make_reference_backend();

}  // namespace millrace
