#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Learned positions, layer norms and biases everywhere, one fused qkv, matrices stored [inputs, outputs].
void describe_gpt2(Config& config, ModelSpec& spec) {
  const int32_t width = config.count("hidden_size", 768);
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 50257,
                                  .width = 768,
                                  .ffn = width <= INT32_MAX / 4 ? 4 * width : width,
                                  .layers = 12,
                                  .heads = 12,
                                  .context = 1024,
                                  .tied = true,
                                  .kv_heads_key = false,
                                  .head_dim_key = false});
  const NormSpec norm = layer_norm(config, "layer_norm_epsilon", 1e-5);
  if (config.flag("add_cross_attention", false)) config.refuse("add_cross_attention", "there is no encoder");
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = true;
  if (!config.flag("scale_attn_weights", true)) gqa.scale = 1;
  DenseSpec ffn = plain_ffn(config, sizes, "hidden_act", "gelu_new");
  ffn.up_bias = ffn.down_bias = true;
  const bool by_depth = config.flag("scale_attn_by_inverse_layer_idx", false);
  const float scale = gqa.scale;
  for (int32_t i = 0; i < sizes.layers; ++i) {
    if (by_depth) gqa.scale = scale / static_cast<float>(i + 1);
    spec.layers.push_back(pre_norm_layer(gqa, ffn, norm));
  }
  spec.final_norm = norm;
  spec.positions = sizes.context;
}

constexpr TensorName kGpt2Names[] = {
    {"token_embd", "transformer.wte"},
    {"position_embd", "transformer.wpe"},
    {"output_norm", "transformer.ln_f"},
    {"blk.{}.attn_norm", "transformer.h.{}.ln_1"},
    {"blk.{}.attn_q", "transformer.h.{}.attn.c_attn", Take::q},
    {"blk.{}.attn_k", "transformer.h.{}.attn.c_attn", Take::k},
    {"blk.{}.attn_v", "transformer.h.{}.attn.c_attn", Take::v},
    {"blk.{}.attn_output", "transformer.h.{}.attn.c_proj"},
    {"blk.{}.ffn_norm", "transformer.h.{}.ln_2"},
    {"blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc"},
    {"blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj"},
};

}  // namespace

extern const Architecture kGpt2 = {.name = "gpt2",
                                   .describe = describe_gpt2,
                                   .names = kGpt2Names,
                                   .transposed = true,
                                   .gguf = {.name = "gpt2", .fused_qkv = true, .biased = true}};

}  // namespace millrace
