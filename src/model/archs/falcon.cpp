#include "model/archs/common.h"
#include "model/archs/list.h"
#include "tensor/half.h"

namespace millrace {
namespace {

// The 7B model has one key/value head and one norm for both halves; 40B and later have groups and may have two norms;
// the RW models have ALiBi, all heads and, some of them, halves in sequence.
void describe_falcon(Config& config, ModelSpec& spec) {
  const bool grouped = config.flag("new_decoder_architecture", false), one_kv = config.flag("multi_query", true);
  const int32_t width = config.count("hidden_size", 4544);
  Sizes usual = {.vocab = 65024,
                 .width = 4544,
                 .ffn = width <= INT32_MAX / 4 ? 4 * width : width,
                 .layers = 32,
                 .heads = 71,
                 .tied = true,
                 .kv_heads_key = grouped,
                 .head_dim_key = false};
  Sizes sizes = read_sizes(config, spec, usual);
  if (!grouped && one_kv) sizes.kv_heads = 1;
  const NormSpec norm = layer_norm(config, "layer_norm_epsilon", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("bias", false);
  if (config.flag("alibi", false)) {
    // Its slopes are bfloat16, and are scaled together with the scores.
    for (float slope : alibi_slopes(sizes.heads)) gqa.alibi.push_back(bf16_to_f32(f32_to_bf16(slope)) * gqa.scale);
  } else {
    gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  }
  DenseSpec ffn = plain_ffn(config, sizes, "hidden_act", "gelu");
  ffn.up_bias = ffn.down_bias = gqa.out_bias;
  LayerSpec layer = pre_norm_layer(gqa, ffn, norm);
  layer.parallel = grouped || config.flag("parallel_attn", true);
  const int32_t norms = config.has("num_ln_in_parallel_attn") ? config.count("num_ln_in_parallel_attn", 1)
                        : grouped                             ? 2
                                                              : 1;
  if (layer.parallel && !(grouped && norms == 2)) {
    layer.ffn_norm.reset();
    layer.shared_norm = true;
  }
  spec.layers.assign(static_cast<size_t>(sizes.layers), layer);
  spec.final_norm = norm;
}

constexpr TensorName kFalconNames[] = {
    {"token_embd", "transformer.word_embeddings"},
    {"output_norm", "transformer.ln_f"},
    {"blk.{}.attn_norm", "transformer.h.{}.ln_attn"},
    {"blk.{}.attn_norm", "transformer.h.{}.input_layernorm"},
    {"blk.{}.attn_q", "transformer.h.{}.self_attention.query_key_value", Take::grouped_q},
    {"blk.{}.attn_k", "transformer.h.{}.self_attention.query_key_value", Take::grouped_k},
    {"blk.{}.attn_v", "transformer.h.{}.self_attention.query_key_value", Take::grouped_v},
    {"blk.{}.attn_output", "transformer.h.{}.self_attention.dense"},
    {"blk.{}.ffn_norm", "transformer.h.{}.ln_mlp"},
    {"blk.{}.ffn_norm", "transformer.h.{}.post_attention_layernorm"},
    {"blk.{}.ffn_up", "transformer.h.{}.mlp.dense_h_to_4h"},
    {"blk.{}.ffn_down", "transformer.h.{}.mlp.dense_4h_to_h"},
};

// Where there are two norms, the second is the attention's and the first the feed-forward part's.
constexpr TensorName kFalconGgufNames[] = {
    {"blk.{}.attn_norm", "blk.{}.attn_norm_2"},
    {"blk.{}.attn_norm", "blk.{}.attn_norm"},
    {"blk.{}.ffn_norm", "blk.{}.attn_norm"},
};

}  // namespace

extern const Architecture kFalcon = {.name = "falcon",
                                     .describe = describe_falcon,
                                     .names = kFalconNames,
                                     .gguf = {.name = "falcon", .fused_qkv = true, .names = kFalconGgufNames}};

}  // namespace millrace
