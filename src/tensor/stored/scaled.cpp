// Eight-bit weights with scales: FP8 (E4M3) with one for the tensor, for each row, or for each rectangle
// (`weight_scale`, `weight_scale_inv`), or with a power of two for 32 inputs (MXFP8, `weight_scale` U8); int8 with a
// scale for each row or group (`weight_scale`), or bitsandbytes' `SCB`, a row's largest size.
#include <algorithm>
#include <array>

#include "tensor/formats/layout.h"
#include "tensor/hugging_face.h"
#include "tensor/stored/layouts.h"

namespace millrace::stored {
namespace {

// Whether inputs are int8 with a factor found for each (config_groups of compressed-tensors).
bool rounds_inputs(const Json& config) {
  const Json* said = quantisation_said(config);
  const Json* groups = said != nullptr ? find(*said, "config_groups") : nullptr;
  if (groups == nullptr || !groups->is_object()) return false;
  return std::ranges::any_of(groups->get_object(), [](const auto& group) {
    const Json* inputs = group.value().is_object() ? find(group.value(), "input_activations") : nullptr;
    if (inputs == nullptr || !inputs->is_object()) return false;
    const Json *type = find(*inputs, "type"), *dynamic = find(*inputs, "dynamic");
    return number_said(inputs, "num_bits", 0) == 8 && type != nullptr && type->is_string() &&
           type->get_string() == "int" && dynamic != nullptr && dynamic->is_bool() && dynamic->get_bool();
  });
}

class Scaled final : public StoredMatrix {
 public:
  Result<void> open(const Checkpoint& checkpoint, const StoredTensor& weight, const StoredTensor& scales) {
    weight_ = &weight, scales_ = &scales;
    tensors_ = {weight_, scales_};
    rows_ = weight.shape[0], cols_ = weight.shape[1];
    largest_ = scales.name.ends_with(".SCB");
    TRY_VOID(find_spread(weight_block_of(checkpoint.config())));
    powers_ = scales.type == DType::u8;
    if (!powers_) TRY_VOID(check_finite(scales));
    for (int64_t i = 0; powers_ && i < scales.values(); ++i)
      if (scales.bytes[static_cast<size_t>(i)] == std::byte{255})
        return error(Code::corrupt, "the tensor '{}' has the exponent 255, which is no number, at {}", scales.name, i);
    const std::string stem = weight.name.substr(0, weight.name.size() - std::string_view(".weight").size());
    if (const StoredTensor* order = checkpoint.find(stem + ".weight_format"); largest_ && order != nullptr) {
      if (order->values() != 1 || number_at(*order, 0) != 0.0f)
        return error(Code::unsupported, "the tensor '{}' says that '{}' lies in tiles of a GPU: expected rows (0)",
                     order->name, weight.name);
      tensors_.push_back(order);
    }
    if (const StoredTensor* zeros = checkpoint.find(stem + ".weight_zero_point")) {
      for (const std::byte byte : zeros->bytes)
        if (byte != std::byte{0})
          return error(Code::unsupported, "the tensor '{}' is not all zero: expected symmetric weights", zeros->name);
      tensors_.push_back(zeros);
    }
    method_ = weight.type == DType::i8 ? "int8 with scales" : powers_ ? "MXFP8" : "FP8 with scales";
    settle_by_rounding();
    if (weight.type == DType::f8_e4m3 && cols_ % 32 == 0 && (cols_each_ % 32 == 0 || cols_each_ == cols_))
      small_ = exact_ = cols_ % 128 == 0 && (cols_each_ % 128 == 0 || cols_each_ == cols_)
                            ? DType::fp8_128
                            : DType::fp8_f32;  // codes and scales as they are
    // Rows or groups of integers keep their codes.
    direct_ = weight.type == DType::i8 && small_ == DType::q8_0 && rows_each_ == 1 && cols_each_ % 32 == 0;
    // Where the checkpoint means inputs to be rounded too, so that whole numbers are multiplied.
    if (direct_ && cols_ % 128 == 0 && (cols_each_ % 128 == 0 || cols_each_ == cols_) &&
        rounds_inputs(checkpoint.config()))
      small_ = DType::int8_128;
    return {};
  }

  void floats(int64_t first, int64_t count, float* out) const override {
    std::array<float, 256> numbers = {};
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = weight_->type == DType::i8 ? static_cast<float>(static_cast<int8_t>(i))
                                              : f8_e4m3_to_f32(static_cast<uint8_t>(i)) + 0.0f;  // no minus zero
    for (int64_t row = first; row < first + count; ++row) {
      const std::byte* from = weight_->bytes.data() + row * cols_;
      for (int64_t begin = 0; begin < cols_; begin += cols_each_) {
        const float s = scale(row, begin);
        for (int64_t i = begin; i < std::min(cols_, begin + cols_each_); ++i) {
          const float number = numbers[static_cast<size_t>(from[i])] * s;
          *out++ = largest_ ? number * kOf127 : number;
        }
      }
    }
  }

 private:
  static constexpr float kOf127 = 7.874015718698502e-3f;

  Result<void> find_spread(const WeightBlock& rectangle) {
    const std::vector<int64_t>& shape = scales_->shape;
    rows_each_ = 1, cols_each_ = cols_;
    if (scales_->values() == 1 && !largest_) {
      rows_each_ = rows_;
    } else if (shape == std::vector{rows_} || shape == std::vector{rows_, int64_t{1}}) {
      return {};
    } else if (scales_->type == DType::u8 && shape == std::vector{rows_, pieces(cols_, 32)}) {
      cols_each_ = 32;
    } else if (!largest_ && shape == std::vector{pieces(rows_, rectangle.rows), pieces(cols_, rectangle.cols)}) {
      rows_each_ = rectangle.rows, cols_each_ = rectangle.cols;
    } else if (weight_->type == DType::i8 && shape.size() == 2 && shape[0] == rows_ && shape[1] > 0 &&
               cols_ % shape[1] == 0) {
      cols_each_ = cols_ / shape[1];
    } else {
      return error(Code::unsupported,
                   "the tensor '{}' has shape {}: expected one scale, one for each of {} rows, or [{}, {}] for tiles "
                   "of {} x {}",
                   scales_->name, shown(shape), rows_, pieces(rows_, rectangle.rows), pieces(cols_, rectangle.cols),
                   rectangle.rows, rectangle.cols);
    }
    return {};
  }

  float scale(int64_t row, int64_t input) const {
    const int64_t i = row / rows_each_ * pieces(cols_, cols_each_) + input / cols_each_;
    return powers_ ? f8_e8m0_to_f32(static_cast<uint8_t>(scales_->bytes[static_cast<size_t>(i)]))
                   : number_at(*scales_, i);
  }

  void pack(int64_t first, int64_t count, std::byte* out) const override {
    if (small_ == DType::fp8_f32) return pack_wide<layout::FP8Float>(first, count, out);
    if (small_ == DType::fp8_128) return pack_wide<layout::FP8Wide>(first, count, out);
    if (small_ == DType::int8_128) return pack_wide<layout::Int8Wide>(first, count, out);
    if (!direct_) return StoredMatrix::pack(first, count, out);
    for (int64_t at = first * cols_; at < (first + count) * cols_; at += 32, out += sizeof(layout::Q8_0)) {
      auto& to = *reinterpret_cast<layout::Q8_0*>(out);
      const float s = scale(at / cols_, at % cols_) * (largest_ ? kOf127 : 1.0f);
      layout::store_u16(to.d, f32_to_f16(std::clamp(s, -65504.0f, 65504.0f)));
      std::memcpy(to.codes, weight_->bytes.data() + at, 32);
    }
  }

  // Codes as they are, with float32 factors.
  template <class Group>
  void pack_wide(int64_t first, int64_t count, std::byte* out) const {
    constexpr int64_t kGroup = sizeof(Group::codes);
    for (int64_t at = first * cols_; at < (first + count) * cols_; at += kGroup, out += sizeof(Group)) {
      auto& to = *reinterpret_cast<Group*>(out);
      const float s = scale(at / cols_, at % cols_);
      std::memcpy(to.d, &s, sizeof s);
      std::memcpy(to.codes, weight_->bytes.data() + at, kGroup);
    }
  }

  const StoredTensor *weight_ = nullptr, *scales_ = nullptr;
  int64_t rows_each_ = 1, cols_each_ = 0;
  bool powers_ = false, largest_ = false, direct_ = false;
};

}  // namespace

Result<StoredMatrixPtr> find_scaled(const Checkpoint& checkpoint, const std::string& stem) {
  const StoredTensor* weight = checkpoint.find(stem + ".weight");
  if (weight == nullptr || weight->shape.size() != 2 || weight->values() == 0) return StoredMatrixPtr();
  if (weight->type != DType::f8_e4m3 && weight->type != DType::i8) return StoredMatrixPtr();
  for (const std::string_view ending : {".weight_scale_inv", ".weight_scale", ".SCB"}) {
    const StoredTensor* scales = checkpoint.find(stem + std::string(ending));
    if (scales == nullptr) continue;
    constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::u8};
    TRY(scales, need(checkpoint, scales->name, kTypes, scales->shape));
    auto made = std::make_shared<Scaled>();
    TRY_VOID(made->open(checkpoint, *weight, *scales));
    return StoredMatrixPtr(std::move(made));
  }
  if (weight->type == DType::f8_e4m3) return StoredMatrixPtr();  // numbers as they are
  return error(Code::invalid, "the tensor '{}' has format I8 and no scales: expected '{}.weight_scale' or '{}.SCB'",
               weight->name, stem, stem);
}

}  // namespace millrace::stored
