// Codes with scales and zero points (tensor/packing.h), chosen: scales so that the weighed squared error is small,
// codes the nearest or by GPTQ. The same for any number of workers. One thread, with a team.
#pragma once

#include <span>

#include "base/team.h"
#include "shrink/gptq.h"
#include "tensor/packing.h"

namespace millrace {

// Scale and zero point of a group. `importance` may be null: all count alike.
struct GroupScale {
  float scale = 1;
  int zero = 0;
};
GroupScale choose_scale(const CodeGrid& grid, const float* numbers, const float* importance, int64_t count);

// A matrix [rows, cols] whose rows are whole groups; `importance` [cols] or empty.
GroupedCodes round_to_codes(Team& team, const CodeGrid& grid, std::span<const float> weights, int64_t rows,
                            int64_t cols, std::span<const float> importance);
GroupedCodes gptq_codes(Team& team, const CodeGrid& grid, std::span<const float> weights, int64_t rows,
                        const Curvature& curvature);

}  // namespace millrace
