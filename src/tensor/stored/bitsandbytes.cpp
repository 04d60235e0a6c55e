// bitsandbytes. Four bits: `weight` holds the whole matrix by rows, two codes a byte, high first, in numbers of any
// type; `weight.quant_map` F32 [16] is the table, `weight.absmax` the factor of each 64 (`blocksize`) values, itself of
// eight bits where nested; `weight.quant_state.bitsandbytes__nf4` is JSON. Eight bits: `weight` I8 and `SCB` F32
// [outputs].
#include "tensor/formats/layout.h"
#include "tensor/stored/layouts.h"

namespace millrace::stored {
namespace {

constexpr size_t kMostState = 64 << 10;

class FourBits final : public StoredMatrix {
 public:
  Result<void> open(const Checkpoint& checkpoint, const StoredTensor& weight, const StoredTensor& state) {
    codes_ = &weight;
    tensors_ = {codes_, &state};
    if (state.bytes.size() > kMostState)
      return error(Code::invalid, "the tensor '{}' has {} bytes: expected JSON of at most {}", state.name,
                   state.bytes.size(), kMostState);
    auto said = parse_json({reinterpret_cast<const char*>(state.bytes.data()), state.bytes.size()}, {.max_depth = 8});
    if (!said.ok()) return within(fmt::format("the tensor '{}'", state.name), std::move(said).error());
    TRY_VOID(read_state(state, *said));
    const std::string& name = weight.name;
    constexpr DType kFloats[] = {DType::f32}, kBytes[] = {DType::u8};
    TRY(const StoredTensor* map, need(checkpoint, name + ".quant_map", kFloats, {16}));
    std::memcpy(table_, map->bytes.data(), sizeof table_);
    tensors_.push_back(map);
    const int64_t factors = pieces(rows_ * cols_, each_);
    nested_ = find(*said, "nested_offset") != nullptr;
    TRY(absmax_, need(checkpoint, name + ".absmax", nested_ ? kBytes : kFloats, {factors}));
    tensors_.push_back(absmax_);
    if (nested_) {
      TRY(outer_, need(checkpoint, name + ".nested_absmax", kFloats, {pieces(factors, outer_each_)}));
      TRY(outer_map_, need(checkpoint, name + ".nested_quant_map", kFloats, {256}));
      tensors_.insert(tensors_.end(), {outer_, outer_map_});
      TRY_VOID(check_finite(*outer_));
      TRY_VOID(check_finite(*outer_map_));
    } else {
      TRY_VOID(check_finite(*absmax_));
    }
    method_ = nested_ ? "bitsandbytes, 4 bits, nested" : "bitsandbytes, 4 bits";
    settle_by_rounding();
    if (cols_ % 32 != 0 || each_ % 32 != 0) return {};
    if (std::memcmp(table_, layout::kNF4Values, sizeof table_) == 0) small_ = DType::nf4;
    if (std::memcmp(table_, layout::kBnbFP4Values, sizeof table_) == 0) small_ = DType::bnb_fp4;
    return {};
  }

  void floats(int64_t first, int64_t count, float* out) const override {
    for (int64_t i = first * cols_; i < (first + count) * cols_; ++i) *out++ = table_[code(i)] * factor(i / each_);
  }

 private:
  Result<void> read_state(const StoredTensor& state, const Json& said) {
    const Json* shape = find(said, "shape");
    const Json* offset = find(said, "nested_offset");
    each_ = number_said(&said, "blocksize", 0);
    outer_each_ = number_said(&said, "nested_blocksize", 256);
    const bool two = shape != nullptr && shape->is_array() && shape->get_array().size() == 2 &&
                     shape->get_array()[0].is_int64() && shape->get_array()[1].is_int64();
    rows_ = two ? shape->get_array()[0].get_int64() : 0, cols_ = two ? shape->get_array()[1].get_int64() : 0;
    if (rows_ < 1 || cols_ < 1 || rows_ > 1 << 24 || cols_ > 1 << 24 || each_ < 1 || each_ > 1 << 20 ||
        outer_each_ < 1 || outer_each_ > 1 << 20 || (offset != nullptr && !offset->is_number()))
      return error(Code::corrupt, "the tensor '{}' says {} x {} in groups of {}: expected a matrix of up to 2^24 each",
                   state.name, rows_, cols_, each_);
    if (codes_->bytes.size() != static_cast<size_t>(pieces(rows_ * cols_, 2)))
      return error(Code::corrupt, "the tensor '{}' has {} bytes: expected {} for {} x {} codes of 4 bits", codes_->name,
                   codes_->bytes.size(), pieces(rows_ * cols_, 2), rows_, cols_);
    offset_ = offset != nullptr ? offset->to_number<float>() : 0.0f;
    return {};
  }

  int code(int64_t i) const {
    return static_cast<int>(codes_->bytes[static_cast<size_t>(i / 2)]) >> (i % 2 == 0 ? 4 : 0) & 15;
  }
  float factor(int64_t i) const {
    if (!nested_) return number_at(*absmax_, i);
    const auto inner = static_cast<int64_t>(absmax_->bytes[static_cast<size_t>(i)]);
    return number_at(*outer_map_, inner) * number_at(*outer_, i / outer_each_) + offset_;
  }

  void pack(int64_t first, int64_t count, std::byte* out) const override {
    if (small_ != DType::nf4 && small_ != DType::bnb_fp4) return StoredMatrix::pack(first, count, out);
    for (int64_t i = first * cols_; i < (first + count) * cols_; i += 32, out += sizeof(layout::NF4)) {
      auto& to = *reinterpret_cast<layout::NF4*>(out);
      layout::store_u16(to.d, f32_to_f16(factor(i / each_)));
      for (int64_t k = 0; k < 16; ++k) to.codes[k] = static_cast<uint8_t>(code(i + k) | code(i + k + 16) << 4);
    }
  }

  const StoredTensor *codes_ = nullptr, *absmax_ = nullptr, *outer_ = nullptr, *outer_map_ = nullptr;
  float table_[16] = {}, offset_ = 0;
  int64_t each_ = 64, outer_each_ = 256;
  bool nested_ = false;
};

}  // namespace

Result<StoredMatrixPtr> find_bitsandbytes(const Checkpoint& checkpoint, const std::string& stem) {
  const StoredTensor* weight = checkpoint.find(stem + ".weight");
  if (weight == nullptr) return StoredMatrixPtr();
  for (const std::string_view kind : {"nf4", "fp4"}) {
    const StoredTensor* state = checkpoint.find(fmt::format("{}.weight.quant_state.bitsandbytes__{}", stem, kind));
    if (state == nullptr) continue;
    auto made = std::make_shared<FourBits>();
    TRY_VOID(made->open(checkpoint, *weight, *state));
    return StoredMatrixPtr(std::move(made));
  }
  return StoredMatrixPtr();
}

}  // namespace millrace::stored
