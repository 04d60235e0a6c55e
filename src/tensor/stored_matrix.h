// StoredMatrix: a weight that a Hugging Face checkpoint keeps as several tensors: codes with scales, zero points or
// tables beside them (GPTQ, AWQ, compressed-tensors, ModelOpt, bitsandbytes, FP8, MXFP4). Which layout it is follows
// from the tensors that are there, never from what the configuration calls it. Everything is checked when it is found;
// afterwards reading cannot fail. The checkpoint must outlive it. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/checkpoint.h"

namespace millrace {

// exact: the float32 numbers the layout defines, in the smallest format that holds them all, F32 if none does.
// small: within 1.2 times the file's bytes for 4 and 8 bits, where a format of groups allows; rounds as that one does.
enum class Keep : uint8_t { small, exact };

class StoredMatrix {
 public:
  virtual ~StoredMatrix() = default;

  int64_t rows() const { return rows_; }                 // outputs
  int64_t cols() const { return cols_; }                 // inputs
  const std::string& method() const { return method_; }  // "GPTQ, 4 bits"
  // All it is made of; the one with the codes first.
  std::span<const StoredTensor* const> tensors() const { return tensors_; }
  DType type(Keep keep) const { return keep == Keep::exact ? exact_ : small_; }
  // Where groups are of inputs that do not follow each other: input order()[i] is the i-th of a row in the order of its
  // groups, and in that order rows fit ordered_type() as they are. Empty if inputs follow each other, or do not fit.
  std::span<const int32_t> order() const { return order_; }
  DType ordered_type() const { return ordered_; }

  // Rows [first, first + count) as the float32 numbers the layout defines.
  virtual void floats(int64_t first, int64_t count, float* out) const = 0;
  // These rows in format type(keep), one after the other.
  void read(std::span<const int64_t> rows, Keep keep, std::span<std::byte> out) const;
  // These rows in order(), in format ordered_type().
  void read_ordered(std::span<const int64_t> rows, std::span<std::byte> out) const;

 protected:
  // Rows in the small format; unless a layout has the codes at hand, its numbers are rounded to it.
  virtual void pack(int64_t first, int64_t count, std::byte* out) const;
  // The same in order(); called only where there is one.
  virtual void pack_ordered(int64_t first, int64_t count, std::byte* out) const;
  // Q8_0, or BF16 where rows are not whole groups of 32.
  void settle_by_rounding();

  int64_t rows_ = 0, cols_ = 0;
  std::string method_;
  std::vector<const StoredTensor*> tensors_;
  DType small_ = DType::bf16, exact_ = DType::f32, ordered_ = DType::f32;
  std::vector<int32_t> order_;
};

using StoredMatrixPtr = std::shared_ptr<const StoredMatrix>;

// How the checkpoint keeps the weight of the module `stem` ("model.layers.0.mlp.down_proj"). Null: as one tensor, or
// not at all. Errors name the tensor, what was expected and what was found.
Result<StoredMatrixPtr> stored_matrix(const Checkpoint& checkpoint, std::string_view stem);

// Whether a tensor of this name says how inputs or the cache may be quantised, which they are not here.
bool is_scale_of_activations(std::string_view name);
// Whether a tensor of this name stands beside codes of weights and is no parameter of a model.
bool is_beside_codes(std::string_view name);

}  // namespace millrace
