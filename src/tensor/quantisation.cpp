// unsupported_quantisation and refused_quantisation: weights that are stored in a way this program does not undo.
#include <algorithm>
#include <array>
#include <cctype>

#include "tensor/checkpoint.h"
#include "tensor/hugging_face.h"
#include "tensor/identify.h"
#include "tensor/stored/layouts.h"

namespace millrace {
namespace {

constexpr std::string_view kInstead =
    "use the original BF16 or F16 checkpoint, one in FP8, GPTQ, AWQ, compressed-tensors or bitsandbytes, or a GGUF "
    "file";

constexpr std::array kMethods = {std::string_view("gptq"),
                                 std::string_view("awq"),
                                 std::string_view("fp8"),
                                 std::string_view("fbgemm_fp8"),
                                 std::string_view("compressed-tensors"),
                                 std::string_view("modelopt"),
                                 std::string_view("modelopt_fp4"),
                                 std::string_view("bitsandbytes"),
                                 std::string_view("mxfp4"),
                                 std::string_view("auto-round")};

// Endings of tensors that hold codes or stand beside them, by which a quantised module is known.
constexpr std::array kMarks = {std::string_view(".qweight"),       std::string_view(".weight_packed"),
                               std::string_view(".weight_scale"),  std::string_view(".weight_scale_inv"),
                               std::string_view(".weight.absmax"), std::string_view(".SCB"),
                               std::string_view("_blocks")};

std::string lower(const Json* value) {
  std::string out;
  if (value == nullptr || !value->is_string()) return out;
  for (const char c : std::string_view(value->get_string()).substr(0, 40))
    out += std::isprint(static_cast<unsigned char>(c)) != 0
               ? static_cast<char>(std::tolower(static_cast<unsigned char>(c)))
               : '?';
  return out;
}

std::string refusal(std::string_view what) {
  return fmt::format(
      "its weights are quantised ({}, says quantization_config in config.json), which cannot be read: {}", what,
      kInstead);
}

// Variants of methods whose usual form is read. Empty: none that is refused.
std::string odd_variant(const Json& said, const std::string& method) {
  const std::string layout = lower(find(said, "checkpoint_format")), version = lower(find(said, "version"));
  if (method == "gptq" && !layout.empty() && layout != "gptq" && layout != "gptq_v2") return "gptq, " + layout;
  if (method == "awq" && !version.empty() && version != "gemm" && version != "gemv") return "awq, " + version;
  if (method == "auto-round" && lower(find(said, "packing_format")).find("gptq") == std::string::npos)
    return "auto-round, " + lower(find(said, "packing_format"));
  if (method != "compressed-tensors") return {};
  const std::string format = lower(find(said, "format"));
  for (const std::string_view sparse : {"sparse-24-bitmask", "marlin-24", "sparse-bitmask"})
    if (format == sparse) return "compressed-tensors, " + format;
  const Json* transform = find(said, "transform_config");
  if (transform != nullptr && transform->is_object() && !transform->get_object().empty())
    return "compressed-tensors with transform_config, rotations applied while running";
  const Json* sparsity = find(said, "sparsity_config");
  const std::string sparse = sparsity != nullptr ? lower(find(*sparsity, "format")) : std::string();
  if (!sparse.empty() && sparse != "dense") return "compressed-tensors, " + sparse;
  return {};
}

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

}  // namespace

std::optional<std::string> refused_quantisation(const Json& config) {
  const Json* said = stored::quantisation_said(config);
  if (said == nullptr || !said->is_object()) return std::nullopt;
  std::string method = lower(find(*said, "quant_method"));
  if (method.empty()) method = lower(find(*said, "quant_algo")).empty() ? "" : "modelopt";
  if (method.starts_with("gptq")) method = "gptq";
  if (std::find(kMethods.begin(), kMethods.end(), method) == kMethods.end())
    return refusal(quantisation_of(config).value_or("an unnamed method"));
  const std::string odd = odd_variant(*said, method);
  if (!odd.empty()) return refusal(odd);
  return std::nullopt;
}

std::optional<std::string> unsupported_quantisation(const Checkpoint& checkpoint) {
  if (checkpoint.kind() == Checkpoint::Kind::gguf) return unreadable_gguf(checkpoint);
  if (auto refused = refused_quantisation(checkpoint.config())) return refused;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const auto mark = std::find_if(kMarks.begin(), kMarks.end(),
                                   [&](std::string_view ending) { return tensor.name.ends_with(ending); });
    if (mark == kMarks.end()) continue;
    const auto found = stored_matrix(checkpoint, tensor.name.substr(0, tensor.name.size() - mark->size()));
    if (!found.ok()) return fmt::format("its weights are quantised, and cannot be read: {}", found.error().message);
    if (*found == nullptr)
      return fmt::format("its weights are quantised (as tensor {} shows), which cannot be read: {}",
                         in_quotes(tensor.name), kInstead);
  }
  return std::nullopt;
}

}  // namespace millrace
