// StripedHyena: layers of Hyena in its modal form with attention among them, under the names of its public inference
// code.
#include <algorithm>

#include "model/archs/list.h"
#include "model/archs/states.h"

namespace millrace {
namespace {

// Its own words for sizes every model has.
void rename(Config& config) {
  for (const auto& [own, usual] :
       {std::pair("num_layers", "num_hidden_layers"), std::pair("inner_mlp_size", "intermediate_size"),
        std::pair("max_seqlen", "max_position_embeddings"), std::pair("rotary_emb_base", "rope_theta"),
        std::pair("tie_embeddings", "tie_word_embeddings")}) {
    if (config.has(own)) config.set(usual, config.values().at(own));
  }
}

void refuse_variants(Config& config) {
  if (config.flag("smeared_gqa", false)) config.refuse("smeared_gqa", "keys of their own heads are built");
  if (config.flag("use_interpolated_rotary_pos_emb", false))
    config.refuse("use_interpolated_rotary_pos_emb", "plain rotation is built");
  if (config.count("hyena_filter_groups", 1) != 1)
    config.refuse("hyena_filter_groups", "a filter for every channel is built");
  if (!config.flag("final_norm", true)) config.refuse("final_norm", "a model ends in a norm");
}

void describe_hyena(Config& config, ModelSpec& spec) {
  rename(config);
  refuse_variants(config);
  Sizes sizes = read_sizes(config, spec,
                           {.vocab = 32000,
                            .width = 4096,
                            .ffn = 10928,
                            .layers = 32,
                            .heads = 32,
                            .context = 32768,
                            .kv_heads_key = false,
                            .head_dim_key = false});
  const int32_t groups = config.count("proj_groups", 1);
  if (groups < 1 || sizes.heads % groups != 0) {
    config.refuse("proj_groups", fmt::format("{} heads cannot be divided by it", sizes.heads));
    return;
  }
  sizes.kv_heads = sizes.heads / groups;
  const NormSpec norm = rms_norm(config, "eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = config.flag("qkv_proj_bias", false);
  gqa.out_bias = config.flag("mha_out_proj_bias", false);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  const HyenaSpec hyena = {.width = sizes.width,
                           .modes = config.count("state_size", 2),
                           .conv = config.count("short_filter_length", 3),
                           .heads = config.flag("column_split_hyena", true) ? sizes.heads : 1,
                           .conv_bias = config.flag("short_filter_bias", true)};
  const DenseSpec ffn = {.width = sizes.ffn};
  const std::vector<int64_t> attending = config.integers("attn_layer_idxs", 0);
  for (int32_t i = 0; i < sizes.layers; ++i) {
    const bool attends = std::find(attending.begin(), attending.end(), i) != attending.end();
    spec.layers.push_back(attends ? mixed_layer(gqa, ffn, norm) : mixed_layer(hyena, ffn, norm));
  }
  spec.final_norm = norm;
}

constexpr TensorName kHyenaNames[] = {
    {"token_embd", "backbone.embedding_layer"},
    {"output", "backbone.unembed"},
    {"output_norm", "backbone.norm.scale", Take::whole, true},
    {"blk.{}.attn_norm", "backbone.blocks.{}.pre_norm.scale", Take::whole, true},
    {"blk.{}.ffn_norm", "backbone.blocks.{}.post_norm.scale", Take::whole, true},
    {"blk.{}.attn_q", "backbone.blocks.{}.inner_mha_cls.Wqkv", Take::q},
    {"blk.{}.attn_k", "backbone.blocks.{}.inner_mha_cls.Wqkv", Take::k},
    {"blk.{}.attn_v", "backbone.blocks.{}.inner_mha_cls.Wqkv", Take::v},
    {"blk.{}.attn_output", "backbone.blocks.{}.inner_mha_cls.out_proj"},
    {"blk.{}.hyena_in", "backbone.blocks.{}.projections"},
    {"blk.{}.hyena_conv", "backbone.blocks.{}.filter.short_filter_weight", Take::whole, true},
    {"blk.{}.hyena_conv_b", "backbone.blocks.{}.filter.short_filter_bias", Take::whole, true},
    {"blk.{}.hyena_poles", "backbone.blocks.{}.filter.poles", Take::whole, true},
    {"blk.{}.hyena_residues", "backbone.blocks.{}.filter.residues", Take::whole, true},
    {"blk.{}.hyena_d", "backbone.blocks.{}.filter.D", Take::whole, true},
    {"blk.{}.hyena_out", "backbone.blocks.{}.out_filter_dense"},
    {"blk.{}.ffn_gate", "backbone.blocks.{}.mlp.l1"},
    {"blk.{}.ffn_up", "backbone.blocks.{}.mlp.l2"},
    {"blk.{}.ffn_down", "backbone.blocks.{}.mlp.l3"},
};

}  // namespace

extern const Architecture kStripedHyena = {.name = "stripedhyena", .describe = describe_hyena, .names = kHyenaNames};

}  // namespace millrace
