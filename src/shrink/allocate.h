// Allocation: a format for every matrix under a budget of bytes. What each matrix costs is measured, as the KL of the
// model with only that one in a coarse format; what it would cost in others follows from its weighed squared error,
// which KL grows with while both are small. Then bytes go where they save the most KL. One thread, with a team.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "shrink/journal.h"
#include "shrink/judge.h"
#include "shrink/student.h"

namespace millrace {

struct TensorCost {
  std::string slot;
  std::vector<DType> types;    // ascending in bytes
  std::vector<int64_t> bytes;  // of each
  std::vector<double> errors;  // weighed, of each
  std::vector<double> kl;      // measured at `probe`, else by errors
  size_t probe = 0, chosen = 0;
};

struct Allocation {
  std::vector<TensorCost> tensors;
  int64_t fixed = 0;   // bytes of what is not chosen: norms, biases, routers
  int64_t bytes = 0;   // of everything, as chosen
  int64_t values = 0;  // numbers of everything
  double kl = 0;       // the sum of what was foreseen

  double bits() const { return static_cast<double>(bytes) * 8 / static_cast<double>(values); }
  std::map<std::string, DType> types() const;  // by slot
};

// What every matrix costs in every format. `tried` hears of each; false stops.
Result<Allocation> measure_costs(Team& team, const ModelSource& source, const ColumnWeights& importance, Judge& judge,
                                 const StudentOptions& options,
                                 const std::function<bool(size_t done, size_t total)>& tried,
                                 Journal* journal = nullptr);

// Whether there is any choice under that budget, before anything is measured.
Result<void> check_budget(const ModelSpec& spec, double bits);

// Chooses under a budget of bits a number, all bytes of weights counted. Refused below what the smallest formats take.
Result<void> allocate(Allocation& allocation, double bits);

}  // namespace millrace
