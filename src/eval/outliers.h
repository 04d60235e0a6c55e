// Outliers: what a few inputs that are far larger than all others do to products in eight bits, and what helps. Planted
// ones, always in the same columns, as trained models have them. Four ways are compared with the product in float64:
// one factor for a row of inputs and one for an output's weights (plain int8); the same with the loudest columns kept
// in 16 bits beside it (LLM.int8, but with columns that are chosen once, so that no row depends on others); a factor
// for every 32 of both, which is Q8_0 as the backend multiplies it; and that with the columns beside it. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"

namespace millrace {

struct OutlierAsk {
  int64_t inputs = 4096, outputs = 256, rows = 16;
  int32_t planted = 6;  // columns
  float times = 100;    // how much larger their inputs are
  uint64_t seed = 1;
};

// Errors of the products, as a part of what the ordinary columns give: what outliers drown first.
struct OutlierErrors {
  double plain = 0, plain_apart = 0;
  double grouped = 0, grouped_apart = 0;
  std::vector<int32_t> columns;  // kept in 16 bits: as many as were planted, found in other rows than are measured
};

Result<OutlierErrors> measure_outliers(std::unique_ptr<Backend> backend, const OutlierAsk& ask);

}  // namespace millrace
