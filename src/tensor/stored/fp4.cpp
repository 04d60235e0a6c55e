// Four-bit numbers (E2M1), two a byte, low first. NVFP4: an E4M3 scale for 16 inputs, and for the whole a divisor
// (`weight_global_scale`, compressed-tensors) or a multiplier (`weight_scale_2`, ModelOpt). MXFP4: a power of two for
// 32 inputs (`weight_scale` U8, or gpt-oss's `NAME_blocks` [.., inputs / 32, 16] and `NAME_scales`).
#include "tensor/formats/layout.h"
#include "tensor/stored/layouts.h"

namespace millrace::stored {
namespace {

class Fp4 final : public StoredMatrix {
 public:
  void floats(int64_t first, int64_t count, float* out) const override {
    for (int64_t i = first * cols_; i < (first + count) * cols_; ++i) {
      *out++ = static_cast<float>(layout::kFP4Values[code(i)]) * 0.5f * factor(i / each_);
    }
  }

  Result<void> open_nv(const Checkpoint& checkpoint, const std::string& stem, const StoredTensor& codes) {
    const bool divides = codes.name.ends_with("_packed");
    const std::string name = stem + (divides ? ".weight_global_scale" : ".weight_scale_2");
    each_ = 16;
    method_ = divides ? "NVFP4, compressed-tensors" : "NVFP4, ModelOpt";
    codes_ = &codes, rows_ = codes.shape[0], cols_ = codes.shape[1] * 2;
    TRY_VOID(find_scales(checkpoint, stem + ".weight_scale", DType::f8_e4m3, {rows_, pieces(cols_, 16)}));
    TRY_VOID(check_finite(*scales_));
    const StoredTensor* whole = checkpoint.find(name);
    TRY(whole, need(checkpoint, name, kScaleTypes,
                    whole != nullptr && whole->shape.empty() ? std::vector<int64_t>() : std::vector<int64_t>{1}));
    whole_ = number_at(*whole, 0);
    if (!(whole_ > 0.0f && whole_ < 3.4e38f))
      return error(Code::corrupt, "the tensor '{}' is {}: expected a positive number", name, whole_);
    divides_ = divides;
    tensors_ = {codes_, scales_, whole};
    // Twice the largest factor is what float16 has to hold.
    const bool fits = (divides ? 448.0f / whole_ : 448.0f * whole_) < 65504.0f;
    small_ = cols_ % 32 == 0 && fits ? DType::fp4_half : DType::bf16;
    return {};
  }

  Result<void> open_mx(const Checkpoint& checkpoint, const std::string& scales, const StoredTensor& codes, int64_t rows,
                       int64_t cols, const std::vector<int64_t>& shape) {
    each_ = 32;
    powers_ = true;
    method_ = "MXFP4";
    codes_ = &codes, rows_ = rows, cols_ = cols;
    TRY_VOID(find_scales(checkpoint, scales, DType::u8, shape));
    for (int64_t i = 0; i < scales_->values(); ++i)
      if (scales_->bytes[static_cast<size_t>(i)] == std::byte{255})
        return error(Code::corrupt, "the tensor '{}' has the exponent 255, which is no number, at {}", scales_->name,
                     i);
    tensors_ = {codes_, scales_};
    small_ = exact_ = cols_ % 32 == 0 ? DType::mxfp4 : DType::bf16;
    return {};
  }

 private:
  Result<void> find_scales(const Checkpoint& checkpoint, const std::string& name, DType type,
                           const std::vector<int64_t>& shape) {
    const DType types[] = {type};
    TRY(scales_, need(checkpoint, name, types, shape));
    return {};
  }

  int code(int64_t i) const { return static_cast<int>(codes_->bytes[static_cast<size_t>(i / 2)]) >> (i % 2 * 4) & 15; }
  float factor(int64_t i) const {
    if (powers_) return f8_e8m0_to_f32(static_cast<uint8_t>(scales_->bytes[static_cast<size_t>(i)]));
    const float scale = f8_e4m3_to_f32(static_cast<uint8_t>(scales_->bytes[static_cast<size_t>(i)]));
    return divides_ ? scale / whole_ : scale * whole_;
  }

  void pack(int64_t first, int64_t count, std::byte* out) const override {
    if (small_ == DType::bf16) return StoredMatrix::pack(first, count, out);
    for (int64_t i = first * cols_; i < (first + count) * cols_; i += 32) {
      uint8_t codes[16];
      for (int64_t k = 0; k < 16; ++k) codes[k] = static_cast<uint8_t>(code(i + k) | code(i + k + 16) << 4);
      if (powers_) {
        auto& to = *reinterpret_cast<layout::MXFP4*>(out);
        to.exponent = static_cast<uint8_t>(scales_->bytes[static_cast<size_t>(i / 32)]);
        std::memcpy(to.codes, codes, 16);
        out += sizeof to;
      } else {
        auto& to = *reinterpret_cast<layout::FP4Half*>(out);
        for (int64_t half = 0; half < 2; ++half)
          layout::store_u16(to.d[half], f32_to_f16(factor(i / 16 + half) * 0.5f));
        std::memcpy(to.codes, codes, 16);
        out += sizeof to;
      }
    }
  }

  const StoredTensor *codes_ = nullptr, *scales_ = nullptr;
  int64_t each_ = 16;
  float whole_ = 1;
  bool divides_ = false, powers_ = false;
};

}  // namespace

Result<StoredMatrixPtr> find_fp4(const Checkpoint& checkpoint, const std::string& stem) {
  auto made = std::make_shared<Fp4>();
  if (const StoredTensor* all = checkpoint.find(stem + "_blocks"); all != nullptr && all->type == DType::u8) {
    if (all->shape.size() < 3 || all->shape.back() != 16)
      return error(Code::invalid, "the tensor '{}' has shape {}: expected [.., outputs, inputs / 32, 16]", all->name,
                   shown(all->shape));
    const std::vector<int64_t> outer(all->shape.begin(), all->shape.end() - 1);
    const int64_t cols = outer.back() * 32, rows = cols > 0 ? all->values() * 2 / cols : 0;
    TRY_VOID(made->open_mx(checkpoint, stem + "_scales", *all, rows, cols, outer));
    return StoredMatrixPtr(std::move(made));
  }
  const StoredTensor* codes = checkpoint.find(stem + ".weight_packed");
  if (codes == nullptr && checkpoint.find(stem + ".weight_scale_2") != nullptr)
    codes = checkpoint.find(stem + ".weight");
  if (codes == nullptr || codes->type != DType::u8) return StoredMatrixPtr();
  if (codes->shape.size() != 2)
    return error(Code::invalid, "the tensor '{}' has shape {}: expected [outputs, inputs / 2]", codes->name,
                 shown(codes->shape));
  const StoredTensor* scale = checkpoint.find(stem + ".weight_scale");
  if (scale != nullptr && scale->type == DType::u8) {
    const int64_t rows = codes->shape[0], cols = codes->shape[1] * 2;
    TRY_VOID(made->open_mx(checkpoint, scale->name, *codes, rows, cols, {rows, pieces(cols, 32)}));
  } else {
    TRY_VOID(made->open_nv(checkpoint, stem, *codes));
  }
  return StoredMatrixPtr(std::move(made));
}

}  // namespace millrace::stored
