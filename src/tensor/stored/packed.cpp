// compressed-tensors, pack-quantized: `weight_packed` I32 [outputs, words] with inputs packed lowest bits first,
// `weight_scale` [outputs, groups], `weight_shape` [2], perhaps `weight_zero_point` (I32 packed along outputs, or I8)
// and `weight_g_idx` I32 [inputs]. Three bits lie ten to a word in older files, and without gaps in newer ones.
#include "tensor/stored/layouts.h"

namespace millrace::stored {
namespace {

class Packed final : public Integers {
 public:
  Result<void> open(const Checkpoint& checkpoint, const std::string& stem, const StoredTensor& packed) {
    words_ = &packed;
    tensors_ = {words_};
    TRY_VOID(find_shape(checkpoint, stem));
    const StoredTensor* scales = checkpoint.find(stem + ".weight_scale");
    const int64_t groups = scales != nullptr && scales->shape.size() == 2 ? scales->shape[1] : 1;
    TRY(scales_, need(checkpoint, stem + ".weight_scale", kScaleTypes, {rows_, groups}));
    tensors_.push_back(scales_);
    scale_row_ = groups, scale_group_ = 1;
    TRY_VOID(set_group_size(groups, 0));
    if (checkpoint.find(stem + ".weight_g_idx") != nullptr) {
      TRY(const StoredTensor* g_idx, need(checkpoint, stem + ".weight_g_idx", kInt32, {cols_}));
      tensors_.push_back(g_idx);
      TRY_VOID(set_groups_of(*g_idx));
    }
    TRY_VOID(find_zeros(checkpoint, stem));
    method_ = fmt::format("compressed-tensors, {} bits{}", bits_, group_of_.empty() ? "" : ", inputs in another order");
    return settle();
  }

 private:
  Result<void> find_shape(const Checkpoint& checkpoint, const std::string& stem) {
    constexpr DType kIntegers[] = {DType::i64, DType::i32};
    TRY(const StoredTensor* shape, need(checkpoint, stem + ".weight_shape", kIntegers, {2}));
    tensors_.push_back(shape);
    const float said[] = {number_at(*shape, 0), number_at(*shape, 1)};
    if (!(said[0] >= 1 && said[0] <= 1 << 24 && said[1] >= 1 && said[1] <= 1 << 24))
      return error(Code::invalid, "the tensor '{}' says [{}, {}]: expected outputs and inputs", shape->name, said[0],
                   said[1]);
    rows_ = static_cast<int64_t>(said[0]), cols_ = static_cast<int64_t>(said[1]);
    for (const int bits : {4, 8, 2, 3}) {
      if (words_->shape == std::vector{rows_, pieces(cols_, 32 / bits)}) {
        bits_ = bits, each_ = 32 / bits;
        return {};
      }
    }
    if (words_->shape == std::vector{rows_, pieces(cols_ * 3, 32)}) {
      bits_ = 3, each_ = 0;
      return {};
    }
    return error(Code::invalid,
                 "the tensor '{}' has shape {}: expected [{}, {}] for 4 bits, {} for 8, {} for 2, {} or {} for 3 ('{}' "
                 "says {} x {})",
                 words_->name, shown(words_->shape), rows_, pieces(cols_, 8), pieces(cols_, 4), pieces(cols_, 16),
                 pieces(cols_, 10), pieces(cols_ * 3, 32), shape->name, rows_, cols_);
  }

  Result<void> find_zeros(const Checkpoint& checkpoint, const std::string& stem) {
    const std::string name = stem + ".weight_zero_point";
    const StoredTensor* zeros = checkpoint.find(name);
    if (zeros == nullptr && !says_asymmetric(checkpoint.config())) return {};
    constexpr DType kTypes[] = {DType::i32, DType::i8};
    const bool plain = zeros != nullptr && zeros->type == DType::i8;
    const int64_t along = plain ? rows_ : each_ > 0 ? pieces(rows_, each_) : pieces(rows_ * bits_, 32);
    TRY(zeros_, need(checkpoint, name, kTypes, {along, groups_}));
    tensors_.push_back(zeros_);
    return {};
  }

  // Whether the configuration calls all its integers asymmetric, so that zero points must be there.
  static bool says_asymmetric(const Json& config) {
    const Json* said = quantisation_said(config);
    const Json* groups = said != nullptr ? millrace::find(*said, "config_groups") : nullptr;
    if (groups == nullptr || !groups->is_object() || groups->get_object().empty()) return false;
    for (const auto& each : groups->get_object()) {
      const Json* weights = millrace::find(each.value(), "weights");
      const Json* symmetric = weights != nullptr ? millrace::find(*weights, "symmetric") : nullptr;
      if (symmetric == nullptr || !symmetric->is_bool() || symmetric->get_bool()) return false;
    }
    return true;
  }

  // Code i of words that lie `stride` apart.
  uint32_t code(const StoredTensor& from, int64_t first, int64_t stride, int64_t i) const {
    if (each_ == 0) return field(from, first, stride, i, bits_);
    return word_at(from, first + i / each_ * stride) >> (i % each_ * bits_) & ((1u << bits_) - 1);
  }

  int zero(int64_t row, int64_t group) const override {
    if (zeros_ == nullptr) return 1 << (bits_ - 1);
    if (zeros_->type == DType::i8)
      return static_cast<int8_t>(zeros_->bytes[static_cast<size_t>(row * groups_ + group)]) + (1 << (bits_ - 1));
    return static_cast<int>(code(*zeros_, group, groups_, row));
  }

  void codes(int64_t first, int64_t count, uint8_t* out) const override {
    const int64_t width = words_->shape[1];
    for (int64_t r = 0; r < count; ++r)
      for (int64_t i = 0; i < cols_; ++i)
        out[r * cols_ + i] = static_cast<uint8_t>(code(*words_, (first + r) * width, 1, i));
  }

  const StoredTensor *words_ = nullptr, *zeros_ = nullptr;
  int64_t each_ = 8;  // codes of a word; 0: they cross its edges
};

}  // namespace

Result<StoredMatrixPtr> find_packed(const Checkpoint& checkpoint, const std::string& stem) {
  const StoredTensor* packed = checkpoint.find(stem + ".weight_packed");
  if (packed == nullptr || packed->type != DType::i32) return StoredMatrixPtr();
  auto made = std::make_shared<Packed>();
  TRY_VOID(made->open(checkpoint, stem, *packed));
  return StoredMatrixPtr(std::move(made));
}

}  // namespace millrace::stored
