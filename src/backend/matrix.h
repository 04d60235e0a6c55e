// What a matrix must satisfy before any backend packs it. Shapes come from files, so failures are Results.
#pragma once

#include <span>

#include "backend/backend.h"

namespace millrace {

Result<void> check_matrix(const HostMatrix& matrix, std::span<const float> bias);

Result<void> check_experts(const HostExperts& experts, std::span<const float> bias);
// One expert's matrix, checked.
Result<HostMatrix> expert_matrix(const HostExperts& experts, int64_t expert);

}  // namespace millrace
