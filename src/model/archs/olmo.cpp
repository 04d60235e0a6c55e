#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

constexpr Sizes kUsual = {.vocab = 50304, .width = 4096, .ffn = 11008, .layers = 32, .heads = 32};

// Norms without weights, and q, k and v clipped.
void describe_olmo(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec, kUsual);
  const NormSpec norm = {.kind = NormKind::layer, .epsilon = 1e-5f, .weight = false};
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.clip = static_cast<float>(config.number_or_none("clip_qkv", 0));
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, gated_ffn(config, sizes), norm));
  spec.final_norm = norm;
}

// Norms after each half instead of before, and over the whole of q and k.
LayerSpec post_norm_layer(Config& config, ModelSpec& spec, const Sizes& sizes) {
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.qk_norm = norm;
  gqa.qk_norm_per_head = false;
  spec.final_norm = norm;
  return {.mixer = gqa, .ffn = gated_ffn(config, sizes), .mixer_post_norm = norm, .ffn_post_norm = norm};
}

void describe_olmo2(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec, kUsual);
  LayerSpec layer = post_norm_layer(config, spec, sizes);
  std::get<GqaSpec>(layer.mixer).rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  spec.layers.assign(static_cast<size_t>(sizes.layers), layer);
}

// Three layers with a window, then one that sees everything; only the latter's rotation is scaled.
void describe_olmo3(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec, kUsual);
  LayerSpec layer = post_norm_layer(config, spec, sizes);
  auto& gqa = std::get<GqaSpec>(layer.mixer);
  const int32_t window = config.count_or_none("sliding_window", 4096);
  const int32_t global =
      add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 500000, .layer_type = "full_attention"});
  const int32_t local = add_rope(config, spec,
                                 {.head_dim = sizes.head_dim,
                                  .theta = 500000,
                                  .layer_type = "sliding_attention",
                                  .theta_key = "rope_local_base_freq",
                                  .scaled = false});
  for (bool sliding : sliding_layers(config, sizes.layers, [](int32_t i) { return (i + 1) % 4 != 0; })) {
    gqa.window = sliding ? window : 0;
    gqa.rope = sliding ? local : global;
    spec.layers.push_back(layer);
  }
}

constexpr TensorName kOlmo2Names[] = {
    {"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
};

}  // namespace

extern const Architecture kOlmo = {
    .name = "olmo", .describe = describe_olmo, .gguf = {.name = "olmo", .permuted = true}};
extern const Architecture kOlmo2 = {
    .name = "olmo2", .describe = describe_olmo2, .names = kOlmo2Names, .gguf = {.name = "olmo2"}};
extern const Architecture kOlmo3 = {
    .name = "olmo3", .describe = describe_olmo3, .names = kOlmo2Names, .gguf = {.name = "olmo2"}};

}  // namespace millrace
