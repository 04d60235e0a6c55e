#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Parallel halves with a norm each, a quarter of each head turns, qkv interleaved by head.
void describe_gpt_neox(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 50432,
                                  .width = 6144,
                                  .ffn = 24576,
                                  .layers = 44,
                                  .heads = 64,
                                  .kv_heads_key = false,
                                  .head_dim_key = false});
  const NormSpec norm = layer_norm(config, "layer_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", true);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .partial = 0.25, .partial_allowed = true});
  DenseSpec ffn = plain_ffn(config, sizes, "hidden_act", "gelu");
  ffn.up_bias = ffn.down_bias = true;
  LayerSpec layer = pre_norm_layer(gqa, ffn, norm);
  layer.parallel = config.flag("use_parallel_residual", true);
  spec.layers.assign(static_cast<size_t>(sizes.layers), layer);
  spec.final_norm = norm;
}

constexpr TensorName kGptNeoxNames[] = {
    {"token_embd", "gpt_neox.embed_in"},
    {"output_norm", "gpt_neox.final_layer_norm"},
    {"output", "embed_out"},
    {"output", "lm_head"},
    {"blk.{}.attn_norm", "gpt_neox.layers.{}.input_layernorm"},
    {"blk.{}.attn_q", "gpt_neox.layers.{}.attention.query_key_value", Take::grouped_q},
    {"blk.{}.attn_k", "gpt_neox.layers.{}.attention.query_key_value", Take::grouped_k},
    {"blk.{}.attn_v", "gpt_neox.layers.{}.attention.query_key_value", Take::grouped_v},
    {"blk.{}.attn_output", "gpt_neox.layers.{}.attention.dense"},
    {"blk.{}.ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm"},
    {"blk.{}.ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h"},
    {"blk.{}.ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h"},
};

}  // namespace

extern const Architecture kGptNeox = {.name = "gpt_neox",
                                      .describe = describe_gpt_neox,
                                      .names = kGptNeoxNames,
                                      .gguf = {.name = "gptneox", .fused_qkv = true}};

}  // namespace millrace
