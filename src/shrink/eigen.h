// Eigenvectors of a symmetric matrix, in double: brought to three diagonals by reflections, then to one by rotations.
// The same numbers for any number of workers. One thread, with a team.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/team.h"

namespace millrace {

struct Eigen {
  std::vector<double> values;   // [n] descending
  std::vector<double> vectors;  // [n, n] a row each, of length 1
};

// Refused where the matrix has numbers that are not finite.
Result<Eigen> eigen(Team& team, std::vector<double> matrix, int64_t n);

}  // namespace millrace
