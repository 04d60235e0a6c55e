#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// A quarter of each head turns; the 12B model has parallel halves with one norm, and a norm of its own for every head.
void describe_stablelm(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 50304,
                                  .width = 2560,
                                  .ffn = 6912,
                                  .layers = 32,
                                  .heads = 32,
                                  .kv_heads = 32,
                                  .context = 4096,
                                  .head_dim_key = false});
  const NormSpec norm = layer_norm(config, "layer_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = config.flag("use_qkv_bias", false);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .partial = 0.25, .partial_allowed = true});
  if (config.flag("qk_layernorm", false)) {
    gqa.qk_norm = layer_norm(config, "layer_norm_eps", 1e-5, false);
    gqa.qk_norm_whole_weight = true;
  }
  LayerSpec layer = pre_norm_layer(gqa, gated_ffn(config, sizes), norm);
  if (config.flag("use_parallel_residual", false)) {
    layer.parallel = layer.shared_norm = true;
    layer.ffn_norm.reset();
  }
  spec.layers.assign(static_cast<size_t>(sizes.layers), layer);
  spec.final_norm = norm;
}

constexpr TensorName kStablelmNames[] = {
    {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm.norms.{}", Take::per_head},
    {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm.norms.{}", Take::per_head},
};

}  // namespace

extern const Architecture kStableLm = {
    .name = "stablelm", .describe = describe_stablelm, .names = kStablelmNames, .gguf = {.name = "stablelm"}};

}  // namespace millrace
