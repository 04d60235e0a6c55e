#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// ALiBi, a norm on the embeddings, biases everywhere, qkv interleaved by head.
void describe_bloom(Config& config, ModelSpec& spec) {
  const int32_t width = config.count("hidden_size", 64);
  Sizes usual = {.vocab = 250880,
                 .width = 64,
                 .ffn = width <= INT32_MAX / 4 ? 4 * width : width,
                 .layers = 2,
                 .heads = 8,
                 .tied = true,
                 .kv_heads_key = false,
                 .head_dim_key = false};
  const Sizes sizes = read_sizes(config, spec, usual);
  const NormSpec norm = layer_norm(config, "layer_norm_epsilon", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = true;
  gqa.alibi = alibi_slopes(sizes.heads);
  const DenseSpec ffn = {
      .width = usual.ffn, .activation = Activation::gelu_tanh, .gated = false, .up_bias = true, .down_bias = true};
  LayerSpec layer = pre_norm_layer(gqa, ffn, norm);
  layer.stream_norms = config.flag("apply_residual_connection_post_layernorm", false);
  spec.layers.assign(static_cast<size_t>(sizes.layers), layer);
  spec.embed_norm = norm;
  spec.final_norm = norm;
}

constexpr TensorName kBloomNames[] = {
    {"token_embd", "transformer.word_embeddings"},
    {"token_embd_norm", "transformer.word_embeddings_layernorm"},
    {"output_norm", "transformer.ln_f"},
    {"blk.{}.attn_norm", "transformer.h.{}.input_layernorm"},
    {"blk.{}.attn_q", "transformer.h.{}.self_attention.query_key_value", Take::grouped_q},
    {"blk.{}.attn_k", "transformer.h.{}.self_attention.query_key_value", Take::grouped_k},
    {"blk.{}.attn_v", "transformer.h.{}.self_attention.query_key_value", Take::grouped_v},
    {"blk.{}.attn_output", "transformer.h.{}.self_attention.dense"},
    {"blk.{}.ffn_norm", "transformer.h.{}.post_attention_layernorm"},
    {"blk.{}.ffn_up", "transformer.h.{}.mlp.dense_h_to_4h"},
    {"blk.{}.ffn_down", "transformer.h.{}.mlp.dense_4h_to_h"},
};

}  // namespace

extern const Architecture kBloom = {.name = "bloom",
                                    .describe = describe_bloom,
                                    .names = kBloomNames,
                                    .gguf = {.name = "bloom", .fused_qkv = true, .biased = true}};

}  // namespace millrace
