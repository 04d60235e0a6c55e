// What the files of this folder share: finding the tensors of a layout, and integers in groups with factors and zero
// points. Each layout is one file with one function that finds it. Pure; any thread.
#pragma once

#include <cstring>
#include <functional>
#include <optional>

#include "tensor/stored_matrix.h"

namespace millrace::stored {

// The layouts. Null: the module's tensors are not of this one.
Result<StoredMatrixPtr> find_gptq(const Checkpoint& checkpoint, const std::string& stem);
Result<StoredMatrixPtr> find_awq(const Checkpoint& checkpoint, const std::string& stem);
Result<StoredMatrixPtr> find_packed(const Checkpoint& checkpoint, const std::string& stem);  // compressed-tensors
Result<StoredMatrixPtr> find_fp4(const Checkpoint& checkpoint, const std::string& stem);     // NVFP4, MXFP4
Result<StoredMatrixPtr> find_bitsandbytes(const Checkpoint& checkpoint, const std::string& stem);
Result<StoredMatrixPtr> find_scaled(const Checkpoint& checkpoint, const std::string& stem);  // FP8, int8, MXFP8

std::string shown(const std::vector<int64_t>& shape);
// The tensor stem + ending of this type (any of `types`) and shape; an error that says what it has instead.
Result<const StoredTensor*> need(const Checkpoint& checkpoint, const std::string& name, std::span<const DType> types,
                                 const std::vector<int64_t>& shape);
// That every number is finite.
Result<void> check_finite(const StoredTensor& tensor);
// Number i of a tensor of plain numbers.
inline float number_at(const StoredTensor& tensor, int64_t i) {
  const Format& f = format(tensor.type);
  float value;
  f.to_float(tensor.bytes.data() + i * f.group_bytes, &value, 1);
  return value;
}
inline int64_t pieces(int64_t all, int64_t each) { return all / each + (all % each != 0 ? 1 : 0); }

inline uint32_t word_at(const StoredTensor& tensor, int64_t i) {
  uint32_t word;
  std::memcpy(&word, tensor.bytes.data() + i * 4, 4);
  return word;
}
// Field i of `bits` bits in words that lie `stride` apart from `first` on, lowest bits first, across their edges.
uint32_t field(const StoredTensor& tensor, int64_t first, int64_t stride, int64_t i, int bits);

inline constexpr DType kScaleTypes[] = {DType::f16, DType::bf16, DType::f32};
inline constexpr DType kInt32[] = {DType::i32};

// Integers of up to eight bits in groups along the inputs: (code - zero) * scale, in float32.
class Integers : public StoredMatrix {
 public:
  void floats(int64_t first, int64_t count, float* out) const override;

 protected:
  void pack(int64_t first, int64_t count, std::byte* out) const override;
  void pack_ordered(int64_t first, int64_t count, std::byte* out) const override;
  // Codes of rows [first, first + count), all their inputs.
  virtual void codes(int64_t first, int64_t count, uint8_t* out) const = 0;
  virtual int zero(int64_t row, int64_t group) const = 0;
  float scale(int64_t row, int64_t group) const { return number_at(*scales_, row * scale_row_ + group * scale_group_); }
  // Of groups that need not follow each other. An error if one is out of range.
  Result<void> set_groups_of(const StoredTensor& g_idx);
  // How many inputs share a scale where there are so many groups; `said` is the configuration's word, or 0.
  Result<void> set_group_size(int64_t groups, int64_t said);
  // What it becomes: after everything else is known.
  Result<void> settle();

  int bits_ = 4;
  int64_t group_ = 0, groups_ = 0;
  const StoredTensor* scales_ = nullptr;
  int64_t scale_row_ = 0, scale_group_ = 0;  // strides
  std::vector<int32_t> group_of_;            // of each input; empty: they follow each other

 private:
  int64_t group_at(int64_t input) const {
    return group_of_.empty() ? input / group_ : group_of_[static_cast<size_t>(input)];
  }
  // The format that has these codes as they are; nothing if there is none.
  struct Codes {
    std::optional<DType> type;
    bool fits = true, exact = true;  // scales are within float16, are float16
  };
  Codes codes_format() const;
  void settle_order();
  // Codes become codes of this format.
  void pack_codes(DType type, int64_t first, int64_t count, std::byte* out) const;
  bool direct_ = false;  // they do
};

// What the configuration says of quantisation, of the model itself or of its language part. Null if nothing.
const Json* quantisation_said(const Json& config);
int64_t number_said(const Json* said, std::string_view key, int64_t otherwise);

}  // namespace millrace::stored
