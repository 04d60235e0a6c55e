#include "tensor/scales.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tensor/half.h"
#include "tensor/hugging_face.h"

namespace millrace {
namespace {

constexpr std::array<std::string_view, 2> kOfWeights = {"_scale_inv", "_scale"};  // behind a weight's name

int64_t pieces(int64_t all, int64_t each) { return all / each + (all % each != 0 ? 1 : 0); }

}  // namespace

Result<Scales> scales_of(const Checkpoint& checkpoint, const StoredTensor& weight) {
  if (weight.type != DType::f8_e4m3 || weight.shape.size() != 2) return Scales{};
  const StoredTensor* found = nullptr;
  for (const std::string_view ending : kOfWeights)
    if (found == nullptr) found = checkpoint.find(fmt::format("{}{}", weight.name, ending));
  if (found == nullptr) return Scales{};
  const int64_t rows = weight.shape[0], cols = weight.shape[1];
  const WeightBlock block = weight_block_of(checkpoint.config());
  const std::vector<int64_t>& shape = found->shape;
  if (!format(found->type).readable()) {
    return error(Code::unsupported, "the tensor '{}' has format {}, which cannot be read", found->name,
                 format(found->type).name);
  }
  if (found->values() == 1) return Scales{found, rows, cols};
  if (shape == std::vector{rows} || shape == std::vector{rows, int64_t{1}}) return Scales{found, 1, cols};
  if (shape == std::vector{pieces(rows, block.rows), pieces(cols, block.cols)})
    return Scales{found, block.rows, block.cols};
  return error(Code::unsupported,
               "the tensor '{}' has shape [{}]: expected one scale, one for each of {} rows, or [{}, {}] for blocks of "
               "{} x {}",
               found->name, fmt::join(shape, ", "), rows, pieces(rows, block.rows), pieces(cols, block.cols),
               block.rows, block.cols);
}

bool is_scale_of_activations(std::string_view name) {
  constexpr std::array kEndings = {".input_scale", ".output_scale", ".k_scale", ".v_scale"};
  return std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view end) { return name.ends_with(end); });
}

bool is_scale(std::string_view name) {
  return is_scale_of_activations(name) || std::any_of(kOfWeights.begin(), kOfWeights.end(), [&](std::string_view end) {
           return name.ends_with(end) && name.substr(0, name.size() - end.size()).ends_with(".weight");
         });
}

Result<void> read_scaled(const StoredTensor& weight, const Scales& scales, std::span<const int64_t> rows,
                         std::span<std::byte> out) {
  TRY(const std::vector<float> factors, read_floats(*scales.tensor));
  std::array<float, 256> numbers = {};
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = f8_e4m3_to_f32(static_cast<uint8_t>(i));
  const int64_t cols = weight.shape[1], across = pieces(cols, scales.cols_each);
  std::byte* to = out.data();
  for (const int64_t row : rows) {
    const std::byte* from = weight.bytes.data() + row * cols;
    const float* mine = factors.data() + row / scales.rows_each * across;
    for (int64_t first = 0; first < cols; first += scales.cols_each, ++mine) {
      const float factor = *mine;
      for (int64_t i = first; i < std::min(cols, first + scales.cols_each); ++i, to += 2) {
        const uint16_t half = f32_to_bf16(numbers[static_cast<size_t>(from[i])] * factor);
        std::memcpy(to, &half, 2);
      }
    }
  }
  return {};
}

}  // namespace millrace
