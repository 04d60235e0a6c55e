#include "tensor/importance.h"

#include <cmath>

#include "tensor/formats/fit.h"
#include "tensor/formats/formats.h"

namespace millrace {
namespace {

using namespace formats;

struct Row {
  DType type;
  FromWeighed* from;
  GridOf* grid;
  PutCodes* put;
};

constexpr Row kRows[] = {
    {DType::q4_0, q4_0_from_float, q4_0_grid, q4_0_put},
    {DType::q4_1, q4_1_from_float, q4_1_grid, q4_1_put},
    {DType::q5_0, q5_0_from_float, q5_0_grid, q5_0_put},
    {DType::q5_1, q5_1_from_float, q5_1_grid, q5_1_put},
    {DType::q8_0, q8_0_from_float, q8_0_grid, q8_0_put},
    {DType::q2_k, q2_k_from_float, q2_k_grid, q2_k_put},
    {DType::q3_k, q3_k_from_float, q3_k_grid, q3_k_put},
    {DType::q4_k, q4_k_from_float, q4_k_grid, q4_k_put},
    {DType::q5_k, q5_k_from_float, q5_k_grid, q5_k_put},
    {DType::q6_k, q6_k_from_float, q6_k_grid, q6_k_put},
    {DType::iq4_nl, iq4_nl_from_float, iq4_nl_grid, iq4_nl_put},
    {DType::iq4_xs, iq4_xs_from_float, iq4_xs_grid, iq4_xs_put},
    {DType::mxfp4, mxfp4_from_float, mxfp4_grid, mxfp4_put},
};

const Row* find(DType type) {
  for (const Row& row : kRows) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

}  // namespace

FromImportant* from_important(DType type) {
  const Row* row = find(type);
  return row != nullptr ? row->from : nullptr;
}

GridFormat grid_format(DType type) {
  const Row* row = find(type);
  return row != nullptr ? GridFormat{row->grid, row->put} : GridFormat{};
}

int nearest_code(const Grid& grid, int index, float value) {
  if (grid.levels == nullptr)
    return fit::nearest((value - grid.offset[index]) * fit::inverse(grid.step[index]), grid.low, grid.high);
  int best = grid.low;
  float least = -1.0f;
  for (int code = grid.low; code <= grid.high; ++code) {
    const float distance = std::fabs(value - value_of(grid, index, code));
    if (least >= 0.0f && !(distance < least)) continue;
    least = distance;
    best = code;
  }
  return best;
}

}  // namespace millrace
