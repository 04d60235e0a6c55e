// unsupported_quantisation: weights that are stored in a way this program does not undo.
#include <algorithm>
#include <array>

#include "tensor/checkpoint.h"
#include "tensor/hugging_face.h"
#include "tensor/identify.h"
#include "tensor/scales.h"

namespace millrace {
namespace {

constexpr std::string_view kInstead =
    "use the original BF16 or F16 checkpoint, one in FP8, or a GGUF file of the same model in F16, BF16, Q8_0, Q6_K, "
    "Q5_K, Q4_K or Q4_0";

struct Mark {
  std::string_view ending, method;
};

// Tensors that only quantised checkpoints have. The first ending that matches names the method.
constexpr std::array kMarks = {
    Mark{".weight_scale_inv", "FP8 with scales"},
    Mark{".weight_scale", "integers with scales"},
    Mark{".weight_packed", "compressed-tensors"},
    Mark{".qweight", "GPTQ or AWQ"},
    Mark{".weight.absmax", "bitsandbytes"},
    Mark{".weight.quant_map", "bitsandbytes"},
    Mark{".SCB", "bitsandbytes"},
    Mark{"_proj_blocks", "MXFP4"},
    Mark{".weight_scale_2", "NVFP4"},
};

std::optional<std::string> unreadable_gguf(const Checkpoint& checkpoint) {
  const StoredTensor* first = nullptr;
  size_t count = 0;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    if (format(tensor.type).readable()) continue;
    if (first == nullptr) first = &tensor;
    if (tensor.type == first->type) ++count;
  }
  if (first == nullptr) return std::nullopt;
  return fmt::format("{} of its {} tensors are in {} (the first is {}), which cannot be read: {}", count,
                     checkpoint.tensors().size(), format(first->type).name, in_quotes(first->name), kInstead);
}

// Whatever has scales is FP8, and its scales are understood.
bool is_scaled_fp8(const Checkpoint& checkpoint) {
  bool any = false;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const auto mark = std::find_if(kMarks.begin(), kMarks.end(),
                                   [&](const Mark& each) { return tensor.name.ends_with(each.ending); });
    if (mark == kMarks.end()) continue;
    if (!mark->ending.starts_with(".weight_scale") || mark->ending == ".weight_scale_2") return false;
    const StoredTensor* weight =
        checkpoint.find(tensor.name.substr(0, tensor.name.size() - mark->ending.size()) + ".weight");
    if (weight == nullptr) return false;
    const auto scales = scales_of(checkpoint, *weight);
    if (!scales.ok() || scales->tensor != &tensor) return false;
    any = true;
  }
  return any;
}

}  // namespace

std::optional<std::string> unsupported_quantisation(const Checkpoint& checkpoint) {
  if (checkpoint.kind() == Checkpoint::Kind::gguf) return unreadable_gguf(checkpoint);
  if (is_scaled_fp8(checkpoint)) return std::nullopt;
  if (const auto method = quantisation_of(checkpoint.config())) {
    return fmt::format(
        "its weights are quantised ({}, says quantization_config in config.json), which cannot be read: {}", *method,
        kInstead);
  }
  for (const Mark& mark : kMarks) {
    const auto tensors = checkpoint.tensors();
    const auto marked = std::find_if(tensors.begin(), tensors.end(),
                                     [&](const StoredTensor& tensor) { return tensor.name.ends_with(mark.ending); });
    if (marked == tensors.end()) continue;
    return fmt::format("its weights are quantised ({}, as tensor {} shows), which cannot be read: {}", mark.method,
                       in_quotes(marked->name), kInstead);
  }
  return std::nullopt;
}

}  // namespace millrace
