// Importance: for every matrix the sum of squares of each of its inputs over a text, and over how many rows, of each
// expert apart. Kept in a file in the layout of llama.cpp's imatrix (GGUF, general.type "imatrix": NAME.in_sum2
// [experts, inputs] and NAME.counts [experts, 1]), so that either program reads the other's. Plain values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/source.h"
#include "tensor/checkpoint.h"

namespace millrace {

struct InputSquares {
  std::string name;  // of the tensor: "blk.0.attn_q.weight"
  int64_t experts = 1, cols = 0;
  std::vector<double> sums;    // [experts, cols]
  std::vector<double> counts;  // [experts] rows
};

struct Importance {
  std::vector<InputSquares> tensors;  // by name, ascending
  int64_t chunks = 0, chunk_tokens = 0;
  std::vector<std::string> datasets;
  std::string of;  // what a run that was interrupted was made of; empty in a finished file

  const InputSquares* find(std::string_view name) const;
};

// Refused by tensor: sums without counts, widths that disagree, numbers that are negative, infinite or NaN.
Result<Importance> read_importance(const Checkpoint& checkpoint);
Result<Importance> read_importance(const Metadata& metadata, std::span<const StoredTensor> tensors);
// `exact` keeps sums in double, for a run that goes on later; other programs read float.
Result<void> write_importance(const Importance& importance, const std::filesystem::path& path, bool exact);

// What an error in each column of a slot's matrix counts: the mean of squares. Empty where the file has nothing of it:
// tables, the head, experts that no row came to.
class ColumnWeights {
 public:
  // Refused if a width is another than the model's, or no tensor is the model's: the file is another model's. The head
  // is left out unless asked for: its rounding shows at once and evenly.
  static Result<ColumnWeights> match(const Importance& importance, const ModelSource& source, bool head);

  std::span<const float> of(const Slot& slot, int64_t expert) const;
  int matched() const { return matched_; }
  int missing() const { return missing_; }  // matrices that are multiplied and of which the file says nothing

 private:
  struct Entry {
    std::string slot;
    std::vector<std::vector<float>> experts;
  };
  std::vector<Entry> entries_;  // by slot, ascending
  int matched_ = 0, missing_ = 0;
};

}  // namespace millrace
