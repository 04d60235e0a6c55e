// GPTQ: `qweight` I32 [inputs * bits / 32, outputs] packed along inputs, `qzeros` I32 [groups, outputs * bits / 32]
// packed along outputs, `scales` [groups, outputs], perhaps `g_idx` I32 [inputs]. Format v1 stores zero points less
// one.
#include "tensor/stored/layouts.h"

namespace millrace::stored {
namespace {

class Gptq final : public Integers {
 public:
  static Result<StoredMatrixPtr> find(const Checkpoint& checkpoint, const std::string& stem,
                                      const StoredTensor& qweight, const StoredTensor& scales) {
    auto made = std::make_shared<Gptq>();
    TRY_VOID(made->open(checkpoint, stem, qweight, scales));
    return StoredMatrixPtr(std::move(made));
  }

 private:
  Result<void> open(const Checkpoint& checkpoint, const std::string& stem, const StoredTensor& qweight,
                    const StoredTensor& scales) {
    const Json* said = quantisation_said(checkpoint.config());
    words_ = &qweight, scales_ = &scales;
    rows_ = scales.shape[1];
    scale_row_ = 1, scale_group_ = rows_;
    zeros_ = checkpoint.find(stem + ".qzeros");
    if (zeros_ == nullptr)
      return error(Code::invalid, "the tensor '{}.qzeros' is missing: expected the zero points of {} groups", stem,
                   scales.shape[0]);
    TRY_VOID(find_bits(number_said(said, "bits", 0)));
    cols_ = qweight.shape[0] * 32 / bits_;
    TRY_VOID(set_group_size(scales.shape[0], number_said(said, "group_size", 0)));
    tensors_ = {words_, scales_, zeros_};
    if (checkpoint.find(stem + ".g_idx") != nullptr) {
      TRY(const StoredTensor* g_idx, need(checkpoint, stem + ".g_idx", kInt32, {cols_}));
      TRY_VOID(set_groups_of(*g_idx));
      tensors_.push_back(g_idx);
    }
    find_version(said);
    method_ = fmt::format("GPTQ, {} bits{}", bits_, group_of_.empty() ? "" : ", inputs in another order");
    return settle();
  }

  // The configuration may say another number for this module, so shapes decide.
  Result<void> find_bits(int64_t said) {
    const std::vector<int64_t>& shape = zeros_->shape;
    bits_ = 0;
    for (const int bits : {4, 8, 3, 2})
      if (shape == std::vector{scales_->shape[0], pieces(rows_ * bits, 32)} && bits_ == 0 &&
          words_->shape[0] * 32 % bits == 0)
        bits_ = bits;
    if (bits_ != 0 && zeros_->type == DType::i32) return {};
    return error(Code::invalid,
                 "the tensor '{}' has format {} and shape {}: expected I32 [{}, {} * bits / 32] with 2, 3, 4 or 8 bits "
                 "(config.json says {})",
                 zeros_->name, format(zeros_->type).name, shown(shape), scales_->shape[0], rows_, said);
  }

  // Files of some makers say v1 and store v2: a symmetric one gives itself away.
  void find_version(const Json* said) {
    const Json* name = said != nullptr ? millrace::find(*said, "checkpoint_format") : nullptr;
    less_one_ = name == nullptr || !name->is_string() || name->get_string() != "gptq_v2";
    const Json* sym = said != nullptr ? millrace::find(*said, "sym") : nullptr;
    if (!less_one_ || (sym != nullptr && sym->is_bool() && !sym->get_bool())) return;
    bool middle = true;
    less_one_ = false;
    for (int64_t g = 0; g < groups_ && middle; ++g)
      for (int64_t row = 0; row < rows_ && middle; ++row) middle = zero(row, g) == 1 << (bits_ - 1);
    less_one_ = !middle;
  }

  int zero(int64_t row, int64_t group) const override {
    const int64_t first = group * zeros_->shape[1];
    if (bits_ == 3 || !less_one_) {
      const auto stored = static_cast<int>(field(*zeros_, first, 1, row, bits_));
      return less_one_ ? (stored + 1) & 7 : stored;
    }
    // Makers subtract one from every field of a word at once, so that a zero borrows from its neighbour.
    const uint32_t ones = bits_ == 2 ? 0x55555555u : bits_ == 4 ? 0x11111111u : 0x01010101u;
    const int64_t each = 32 / bits_;
    const uint32_t word = word_at(*zeros_, first + row / each) + ones;
    return static_cast<int>(word >> (row % each * bits_) & ((1u << bits_) - 1));
  }

  void codes(int64_t first, int64_t count, uint8_t* out) const override {
    if (bits_ == 3) {
      for (int64_t i = 0; i < cols_; ++i)
        for (int64_t r = 0; r < count; ++r)
          out[r * cols_ + i] = static_cast<uint8_t>(field(*words_, first + r, rows_, i, 3));
      return;
    }
    const int64_t each = 32 / bits_;
    const uint32_t mask = (1u << bits_) - 1;
    for (int64_t w = 0; w < words_->shape[0]; ++w) {
      for (int64_t r = 0; r < count; ++r) {
        uint32_t word = word_at(*words_, w * rows_ + first + r);
        for (int64_t k = 0; k < each; ++k, word >>= bits_)
          out[r * cols_ + w * each + k] = static_cast<uint8_t>(word & mask);
      }
    }
  }

  const StoredTensor *words_ = nullptr, *zeros_ = nullptr;
  bool less_one_ = true;
};

}  // namespace

Result<StoredMatrixPtr> find_gptq(const Checkpoint& checkpoint, const std::string& stem) {
  const StoredTensor* qweight = checkpoint.find(stem + ".qweight");
  if (qweight == nullptr) return StoredMatrixPtr();
  const StoredTensor* scales = checkpoint.find(stem + ".scales");
  if (scales == nullptr) return error(Code::invalid, "the tensor '{}.scales' is missing", stem);
  if (qweight->type != DType::i32 || qweight->shape.size() != 2 || scales->shape.size() != 2)
    return error(Code::invalid,
                 "the tensors '{}' and '{}' have shapes {} and {}: expected I32 and factors of two "
                 "dimensions",
                 qweight->name, scales->name, shown(qweight->shape), shown(scales->shape));
  if (qweight->values() == 0 || qweight->shape[1] != scales->shape[1]) return StoredMatrixPtr();
  // AWQ for vectors may have the same shapes, if there is room for as many groups as there are words.
  const Json* said = quantisation_said(checkpoint.config());
  const Json* version = said != nullptr ? millrace::find(*said, "version") : nullptr;
  const bool gemv = version != nullptr && version->is_string() && version->get_string() == "gemv";
  if (gemv && qweight->shape[0] == scales->shape[0]) return StoredMatrixPtr();
  TRY(scales, need(checkpoint, scales->name, kScaleTypes, scales->shape));
  return Gptq::find(checkpoint, stem, *qweight, *scales);
}

}  // namespace millrace::stored
