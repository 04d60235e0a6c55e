#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

constexpr Sizes kUsual = {
    .vocab = 256000, .width = 8192, .ffn = 22528, .layers = 40, .heads = 64, .context = 8192, .tied = true};

// Parallel halves with one norm without bias, neighbours turn, logits are scaled.
LayerSpec begin(Config& config, ModelSpec& spec, const Sizes& sizes) {
  spec.final_norm = layer_norm(config, "layer_norm_eps", 1e-5, false);
  spec.logit_scale = static_cast<float>(config.number("logit_scale", 0.0625));
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  return {.mixer = gqa,
          .ffn = gated_ffn(config, sizes),
          .mixer_norm = spec.final_norm,
          .parallel = true,
          .shared_norm = true};
}

void describe_cohere(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec, kUsual);
  LayerSpec layer = begin(config, spec, sizes);
  auto& gqa = std::get<GqaSpec>(layer.mixer);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 500000, .neighbours = true});
  if (config.flag("use_qk_norm", false)) {
    gqa.qk_norm = spec.final_norm;
    gqa.qk_norm_whole_weight = true;
  }
  spec.layers.assign(static_cast<size_t>(sizes.layers), layer);
}

// Three layers with a window that turn, then one that sees everything and does not.
void describe_cohere2(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec, kUsual);
  LayerSpec layer = begin(config, spec, sizes);
  auto& gqa = std::get<GqaSpec>(layer.mixer);
  const int32_t rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .neighbours = true});
  const int32_t window = config.count_or_none("sliding_window", 4096);
  const int32_t period = config.count("sliding_window_pattern", 4);
  for (bool sliding : sliding_layers(config, sizes.layers, [&](int32_t i) { return (i + 1) % period != 0; })) {
    gqa.window = sliding ? window : 0;
    gqa.rope = sliding && window > 0 ? rope : -1;
    spec.layers.push_back(layer);
  }
}

}  // namespace

extern const Architecture kCohere = {.name = "cohere", .describe = describe_cohere, .gguf = {.name = "command-r"}};
extern const Architecture kCohere2 = {.name = "cohere2", .describe = describe_cohere2, .gguf = {.name = "cohere2"}};

}  // namespace millrace
