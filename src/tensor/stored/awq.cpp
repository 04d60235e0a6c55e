// AWQ, four bits. gemm: `qweight` I32 [inputs, outputs / 8] packed along outputs in the order 0 2 4 6 1 3 5 7, `qzeros`
// I32 [groups, outputs / 8] likewise, `scales` [groups, outputs]. gemv: `qweight` I32 [outputs, inputs / 8] in natural
// order, `qzeros` and `scales` by outputs, with room for more groups than there are.
#include "tensor/stored/layouts.h"

namespace millrace::stored {
namespace {

constexpr int kPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // which nibble holds output i of eight

class Awq final : public Integers {
 public:
  static Result<StoredMatrixPtr> gemm(const Checkpoint& checkpoint, const std::string& stem,
                                      const StoredTensor& qweight, const StoredTensor& scales) {
    auto made = std::make_shared<Awq>();
    made->words_ = &qweight, made->scales_ = &scales;
    made->rows_ = scales.shape[1], made->cols_ = qweight.shape[0];
    made->scale_row_ = 1, made->scale_group_ = made->rows_;
    const int64_t said = number_said(quantisation_said(checkpoint.config()), "group_size", 0);
    TRY_VOID(made->set_group_size(scales.shape[0], said));
    TRY(made->zeros_, need(checkpoint, stem + ".qzeros", kInt32, {made->groups_, qweight.shape[1]}));
    return made->finish("AWQ gemm, 4 bits", made);
  }

  static Result<StoredMatrixPtr> gemv(const Checkpoint& checkpoint, const std::string& stem,
                                      const StoredTensor& qweight, const StoredTensor& scales) {
    auto made = std::make_shared<Awq>();
    made->across_ = false;
    made->words_ = &qweight, made->scales_ = &scales;
    made->rows_ = scales.shape[0], made->cols_ = qweight.shape[1] * 8;
    made->scale_row_ = scales.shape[1], made->scale_group_ = 1;
    int64_t group = number_said(quantisation_said(checkpoint.config()), "group_size", 128);
    if (group <= 0) group = made->cols_;
    const int64_t groups = pieces(made->cols_, group);
    if (groups > scales.shape[1])
      return error(Code::invalid, "the tensor '{}' has shape {}: expected room for {} groups of {}", scales.name,
                   shown(scales.shape), groups, group);
    made->zeros_ = checkpoint.find(stem + ".qzeros");
    if (made->zeros_ == nullptr || made->zeros_->type != DType::i32 || made->zeros_->shape.size() != 2 ||
        made->zeros_->shape[0] != made->rows_ || made->zeros_->shape[1] < pieces(groups, 8))
      return error(Code::invalid, "the tensor '{}.qzeros' is missing or has another shape: expected I32 [{}, {}]", stem,
                   made->rows_, pieces(groups, 8));
    TRY_VOID(made->set_group_size(groups, group));
    return made->finish("AWQ gemv, 4 bits", made);
  }

 private:
  Result<StoredMatrixPtr> finish(std::string_view method, std::shared_ptr<Awq> self) {
    tensors_ = {words_, scales_, zeros_};
    method_ = method;
    TRY_VOID(settle());
    return StoredMatrixPtr(std::move(self));
  }

  int zero(int64_t row, int64_t group) const override {
    if (!across_) return static_cast<int>(field(*zeros_, row * zeros_->shape[1], 1, group, 4));
    return static_cast<int>(word_at(*zeros_, group * zeros_->shape[1] + row / 8) >> (4 * kPlaces[row % 8]) & 15u);
  }

  void codes(int64_t first, int64_t count, uint8_t* out) const override {
    const int64_t width = words_->shape[1];
    if (!across_) {
      for (int64_t r = 0; r < count; ++r)
        for (int64_t i = 0; i < cols_; ++i)
          out[r * cols_ + i] = static_cast<uint8_t>(word_at(*words_, (first + r) * width + i / 8) >> (i % 8 * 4) & 15u);
      return;
    }
    for (int64_t i = 0; i < cols_; ++i) {
      for (int64_t r = 0; r < count; ++r) {
        const int64_t row = first + r;
        const uint32_t word = word_at(*words_, i * width + row / 8);
        out[r * cols_ + i] = static_cast<uint8_t>(word >> (4 * kPlaces[row % 8]) & 15u);
      }
    }
  }

  const StoredTensor *words_ = nullptr, *zeros_ = nullptr;
  bool across_ = true;  // packed along outputs
};

}  // namespace

// After GPTQ, which has as many columns of words as scales.
Result<StoredMatrixPtr> find_awq(const Checkpoint& checkpoint, const std::string& stem) {
  const StoredTensor* qweight = checkpoint.find(stem + ".qweight");
  if (qweight == nullptr) return StoredMatrixPtr();
  const std::vector<int64_t>& shape = qweight->shape;
  TRY(const StoredTensor* scales,
      need(checkpoint, stem + ".scales", kScaleTypes, checkpoint.find(stem + ".scales")->shape));
  if (qweight->values() > 0 && shape[1] * 8 == scales->shape[1]) return Awq::gemm(checkpoint, stem, *qweight, *scales);
  if (qweight->values() > 0 && shape[0] == scales->shape[0]) return Awq::gemv(checkpoint, stem, *qweight, *scales);
  return error(Code::invalid,
               "the tensors '{}' {} and '{}' {} fit neither GPTQ ([inputs * bits / 32, outputs] and [groups, outputs]) "
               "nor AWQ ([inputs, outputs / 8] or [outputs, inputs / 8])",
               qweight->name, shown(shape), scales->name, shown(scales->shape));
}

}  // namespace millrace::stored
