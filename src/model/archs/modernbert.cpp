#include <algorithm>

#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Norms before each half but the very first, gates, and two of three layers that see a window to both sides.
void describe_modernbert(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 50368,
                                  .width = 768,
                                  .ffn = 1152,
                                  .layers = 22,
                                  .heads = 12,
                                  .context = 8192,
                                  .tied = true,
                                  .kv_heads_key = false,
                                  .head_dim_key = false});
  const NormSpec norm = layer_norm(config, "norm_eps", 1e-5, config.flag("norm_bias", false));
  GqaSpec gqa = attention(sizes);
  gqa.causal = false;
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  DenseSpec ffn = gated_ffn(config, sizes, "hidden_activation", "gelu");
  ffn.up_bias = ffn.down_bias = config.flag("mlp_bias", false);
  const int32_t global = add_rope(
      config, spec,
      {.head_dim = sizes.head_dim, .theta = 160000, .layer_type = "full_attention", .theta_key = "global_rope_theta"});
  const int32_t local = add_rope(config, spec,
                                 {.head_dim = sizes.head_dim,
                                  .theta = 10000,
                                  .layer_type = "sliding_attention",
                                  .theta_key = "local_rope_theta",
                                  .scaled = false});
  const int32_t every = config.count("global_attn_every_n_layers", 3);
  const int32_t side = config.count(config.has("local_attention") ? "local_attention" : "sliding_window", 128) / 2;
  for (bool sliding : sliding_layers(config, sizes.layers, [&](int32_t i) { return i % every != 0; })) {
    gqa.window = sliding ? side + 1 : 0;
    gqa.ahead = sliding ? std::max(1, side) : 0;
    gqa.rope = sliding ? local : global;
    spec.layers.push_back(pre_norm_layer(gqa, ffn, norm));
  }
  if (!spec.layers.empty()) spec.layers[0].mixer_norm.reset();  // the embedding's norm stands for it
  spec.embed_norm = spec.final_norm = norm;
  spec.head = false;
  spec.tied = true;
  spec.pool = PoolSpec{.pooling = Pooling::mean};
  if (!is_classifier(config)) return;
  spec.pool->pooling = config.text("classifier_pooling", "cls") == "mean" ? Pooling::mean : Pooling::first;
  spec.pool->scores = true;
  spec.pool->projections = {{.outputs = spec.width,
                             .bias = config.flag("classifier_bias", false),
                             .activation = activation(config, "classifier_activation", "gelu"),
                             .norm = norm},
                            {.outputs = labels_of(config)}};
}

constexpr TensorName kModernbertNames[] = {
    {"token_embd", "model.embeddings.tok_embeddings"},
    {"token_embd_norm", "model.embeddings.norm"},
    {"output_norm", "model.final_norm"},
    {"blk.{}.attn_norm", "model.layers.{}.attn_norm"},
    {"blk.{}.attn_q", "model.layers.{}.attn.Wqkv", Take::q},
    {"blk.{}.attn_k", "model.layers.{}.attn.Wqkv", Take::k},
    {"blk.{}.attn_v", "model.layers.{}.attn.Wqkv", Take::v},
    {"blk.{}.attn_output", "model.layers.{}.attn.Wo"},
    {"blk.{}.ffn_norm", "model.layers.{}.mlp_norm"},
    {"blk.{}.ffn_gate", "model.layers.{}.mlp.Wi", Take::first_half},
    {"blk.{}.ffn_up", "model.layers.{}.mlp.Wi", Take::second_half},
    {"blk.{}.ffn_down", "model.layers.{}.mlp.Wo"},
    {"cls.0", "head.dense"},
    {"cls.0_norm", "head.norm"},
    {"cls.1", "classifier"},
};

constexpr TensorName kModernbertGgufNames[] = {
    {"cls.0", "cls"},
    {"cls.0_norm", "cls.norm"},
    {"cls.1", "cls.output"},
};

}  // namespace

extern const Architecture kModernBert = {
    .name = "modernbert",
    .describe = describe_modernbert,
    .names = kModernbertNames,
    .gguf = {.name = "modern-bert", .fused_qkv = true, .fused_ffn = true, .names = kModernbertGgufNames}};

}  // namespace millrace
