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
void describe_olmo2(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec, kUsual);
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.qk_norm = norm;
  gqa.qk_norm_per_head = false;
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  spec.layers.assign(static_cast<size_t>(sizes.layers),
                     {.mixer = gqa, .ffn = gated_ffn(config, sizes), .mixer_post_norm = norm, .ffn_post_norm = norm});
  spec.final_norm = norm;
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

}  // namespace millrace
