// Whether a device computes every operation right: each operation, weight format and composition against the reference
// backend, and against itself where bits must not depend on how it was called (contract 1). One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"

namespace millrace {

// What one check found. Errors are of rows: the length of the difference, as a share of the length of what is right.
struct OpsLine {
  std::string name;         // "linear Q4_K"
  int64_t cases = 0;        // comparisons
  double error = 0;         // the largest
  double allowed = 0;       // of error
  int64_t different = 0;    // rows whose bits differ where they must not
  uint64_t hash = 0;        // of what came out: the same for kernels that agree on every bit
  std::string first;        // what went wrong first, with the numbers
  std::string unsupported;  // set: the device refused, and said this

  bool fine() const { return first.empty(); }
};

struct OpsCheckOptions {
  std::function<Result<std::unique_ptr<Backend>>()> open;  // a device to check; opened several times, one at a time
  std::string only;                                        // checks whose name contains this; empty: all
  bool large = false;                                      // large sizes too; where the device is apart, always
  bool plant = false;                                      // one number is changed in every check, which must show
  std::function<void(const OpsLine&)> told;                // as they end; may be empty
};

Result<std::vector<OpsLine>> check_ops(const OpsCheckOptions& options);

}  // namespace millrace
