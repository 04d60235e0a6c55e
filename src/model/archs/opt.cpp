#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Learned positions that count from 2. The 350M model normalises after each half and projects its embeddings in and
// out.
void describe_opt(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 50272,
                                  .width = 768,
                                  .ffn = 3072,
                                  .layers = 12,
                                  .heads = 12,
                                  .tied = true,
                                  .kv_heads_key = false,
                                  .head_dim_key = false});
  NormSpec norm = {.kind = NormKind::layer, .epsilon = 1e-5f, .bias = true};
  if (!config.flag("layer_norm_elementwise_affine", true)) norm.weight = norm.bias = false;
  const bool biased = config.flag("enable_bias", true), before = config.flag("do_layer_norm_before", true);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = biased;
  DenseSpec ffn = plain_ffn(config, sizes, "hidden_act", "relu");
  ffn.up_bias = ffn.down_bias = biased;
  LayerSpec layer = pre_norm_layer(gqa, ffn, norm);
  if (!before) {
    layer = {.mixer = gqa, .ffn = ffn, .mixer_post_norm = norm, .ffn_post_norm = norm, .stream_norms = true};
  }
  spec.layers.assign(static_cast<size_t>(sizes.layers), layer);
  if (before && !config.flag("_remove_final_layer_norm", false)) spec.final_norm = norm;
  const int32_t embed = config.count("word_embed_proj_dim", sizes.width);
  spec.embed_width = embed == sizes.width ? 0 : embed;
  spec.position_offset = 2;
  spec.positions = sizes.context + spec.position_offset;
}

constexpr TensorName kOptNames[] = {
    {"token_embd", "model.decoder.embed_tokens"},
    {"position_embd", "model.decoder.embed_positions"},
    {"project_in", "model.decoder.project_in"},
    {"project_out", "model.decoder.project_out"},
    {"output_norm", "model.decoder.final_layer_norm"},
    {"blk.{}.attn_norm", "model.decoder.layers.{}.self_attn_layer_norm"},
    {"blk.{}.post_attention_norm", "model.decoder.layers.{}.self_attn_layer_norm"},
    {"blk.{}.attn_q", "model.decoder.layers.{}.self_attn.q_proj"},
    {"blk.{}.attn_k", "model.decoder.layers.{}.self_attn.k_proj"},
    {"blk.{}.attn_v", "model.decoder.layers.{}.self_attn.v_proj"},
    {"blk.{}.attn_output", "model.decoder.layers.{}.self_attn.out_proj"},
    {"blk.{}.ffn_norm", "model.decoder.layers.{}.final_layer_norm"},
    {"blk.{}.post_ffw_norm", "model.decoder.layers.{}.final_layer_norm"},
    {"blk.{}.ffn_up", "model.decoder.layers.{}.fc1"},
    {"blk.{}.ffn_down", "model.decoder.layers.{}.fc2"},
};

}  // namespace

extern const Architecture kOpt = {.name = "opt", .describe = describe_opt, .names = kOptNames};

}  // namespace millrace
