// What a matrix must satisfy before any backend packs it. Shapes come from files, so failures are Results.
#pragma once

#include <span>

#include "backend/backend.h"

namespace millrace {

Result<void> check_matrix(const HostMatrix& matrix, std::span<const float> bias);

}  // namespace millrace
