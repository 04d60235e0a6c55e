// Linear algebra in double for matrices of a few thousand columns: Cholesky, triangular inverse, solving. Every number
// is computed in one fixed order, so that results are the same for any number of workers and on every machine. Matrices
// lie by rows. One thread, with a team.
#pragma once

#include <cstdint>

#include "base/team.h"

namespace millrace {

// The lower factor L of a = L L^T in place (what lies above the diagonal is not touched); only the lower half is read.
// False if the matrix is not positive definite: then it holds nothing of use.
bool cholesky(Team& team, double* a, int64_t n);

// The inverse of a lower factor, in `out` [n, n], zeros above the diagonal.
void invert_lower(Team& team, const double* lower, int64_t n, double* out);

// Rows x of `rows` [count, n] become the solutions of x L L^T = row.
void solve_rows(Team& team, const double* lower, int64_t n, double* rows, int64_t count);

}  // namespace millrace
