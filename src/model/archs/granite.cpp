#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Llama with multipliers: on embeddings, scores, residuals and (as a divisor) logits.
void describe_granite(Config& config, ModelSpec& spec) {
  const Sizes sizes =
      read_sizes(config, spec, {.vocab = 32000, .width = 4096, .ffn = 11008, .layers = 32, .heads = 32});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  GqaSpec gqa = attention(sizes);
  gqa.scale = static_cast<float>(config.number("attention_multiplier", 1));
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  DenseSpec ffn = gated_ffn(config, sizes);
  ffn.up_bias = ffn.down_bias = config.flag("mlp_bias", false);
  LayerSpec layer = pre_norm_layer(gqa, ffn, norm);
  layer.residual_scale = static_cast<float>(config.number("residual_multiplier", 1));
  spec.layers.assign(static_cast<size_t>(sizes.layers), layer);
  spec.final_norm = norm;
  spec.embed_scale = static_cast<float>(config.number("embedding_multiplier", 1));
  spec.logit_scale = static_cast<float>(1 / config.positive("logits_scaling", 1));
}

}  // namespace

extern const Architecture kGranite = {
    .name = "granite", .describe = describe_granite, .gguf = {.name = "granite", .permuted = true}};

}  // namespace millrace
