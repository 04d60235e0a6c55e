// Folds: factors that columns of matrices are multiplied with while whatever makes their inputs is divided by them: a
// norm's weight, or the rows of the matrix before. The model computes what it did, but its numbers lie otherwise, and
// may bear rounding better; the file stays a plain one. Where a fold would not be exact it is left out, and said.
// Plain values; one thread.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/source.h"

namespace millrace {

// Matrices that read the same columns, and what gives these.
struct FoldGroup {
  Slot giver;                 // a norm, or a matrix whose rows the columns are
  std::vector<Slot> readers;  // [.., columns]
  int64_t size = 0;           // factors; of each expert apart where the giver has experts
  // Which factor each column of the readers has; empty: its own. Heads that share values share factors.
  std::vector<int32_t> shares;

  size_t factor_of(int64_t column) const {
    return static_cast<size_t>(shares.empty() ? column : shares[static_cast<size_t>(column)]);
  }
  bool by_norm() const { return giver.kind == SlotKind::norm; }
};

struct FoldPlan {
  std::vector<FoldGroup> groups;      // layer by layer; within one those of norms first
  std::vector<std::string> left_out;  // "inputs of the ffn (layers 0-3): no norm before them"
};
FoldPlan fold_plan(const ModelSpec& spec);

// Factors that were chosen, and what numbers become by them.
class Folds {
 public:
  Folds() = default;
  // Only powers of two: what is divided by them stays exact in 16 bits, as files for other engines have norms.
  explicit Folds(bool powers_of_two) : powers_of_two_(powers_of_two) {}
  // Replaces what was set for the group and expert before.
  void set(const FoldGroup& group, int64_t expert, std::span<const float> wanted);
  bool empty() const { return columns_.empty(); }
  // A matrix of `wide`, folded.
  Result<std::vector<float>> matrix(const ModelSource& wide, const Slot& slot, int64_t expert) const;
  // What errors in columns count that were divided so; `importance` is of the inputs as they were, and may be empty.
  std::vector<float> importance(const Slot& slot, int64_t expert, std::span<const float> importance) const;
  // Puts what is not quantised into the student: norms, biases, and matrices that `rounded` does not name.
  Result<void> put_beside(const ModelSource& wide, const std::function<bool(const Slot& slot)>& rounded,
                          ModelSource& student) const;
  bool changes(const Slot& slot) const;

 private:
  using Factors = std::map<std::string, std::vector<std::vector<float>>>;  // by slot, of each expert
  static std::span<const float> of(const Factors& factors, const Slot& slot, int64_t expert);

  Factors columns_, rows_;  // rows_ of norms too: their numbers
  bool powers_of_two_ = false;
};

}  // namespace millrace
