#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Half of each head turns, neighbours together; gate and up are one matrix. GLM-4-0414 adds norms after each half.
void describe(Config& config, ModelSpec& spec, bool sandwich) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 151552,
                                  .width = 4096,
                                  .ffn = 13696,
                                  .layers = 40,
                                  .heads = 32,
                                  .kv_heads = 2,
                                  .head_dim = 128,
                                  .context = 131072});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1.5625e-7);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = config.flag("attention_bias", true);
  gqa.rope =
      add_rope(config, spec, {.head_dim = sizes.head_dim, .partial = 0.5, .partial_allowed = true, .neighbours = true});
  LayerSpec layer = pre_norm_layer(gqa, gated_ffn(config, sizes), norm);
  if (sandwich) layer.mixer_post_norm = layer.ffn_post_norm = norm;
  spec.layers.assign(static_cast<size_t>(sizes.layers), layer);
  spec.final_norm = norm;
}

void describe_glm(Config& config, ModelSpec& spec) { describe(config, spec, false); }
void describe_glm4(Config& config, ModelSpec& spec) { describe(config, spec, true); }

// GLM 4.5: the first layers dense, then experts and a shared one; halves of a head turn together.
void describe_glm4_moe(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 151552,
                                  .width = 4096,
                                  .ffn = 10944,
                                  .layers = 46,
                                  .heads = 96,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .context = 131072});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = config.flag("attention_bias", false);
  if (config.flag("use_qk_norm", false)) gqa.qk_norm = norm;
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .partial = 0.5, .partial_allowed = true});
  MoeSpec moe = mixture(config, {.experts = 128, .chosen = 8, .width = 1408});
  moe.router = grouped_router(config);
  const int64_t shared = int64_t{config.count_or_none("n_shared_experts", 1)} * moe.width;
  if (shared > INT32_MAX) return config.refuse("n_shared_experts", "more than can be counted");
  moe.shared_width = static_cast<int32_t>(shared);
  const int32_t dense = config.count_or_none("first_k_dense_replace", 1);
  const DenseSpec ffn = gated_ffn(config, sizes);
  for (int32_t i = 0; i < sizes.layers; ++i)
    spec.layers.push_back(pre_norm_layer(gqa, i < dense ? FfnSpec(ffn) : FfnSpec(moe), norm));
  spec.final_norm = norm;
}

constexpr TensorName kMoeGguf[] = {{"blk.{}.ffn_norm", "blk.{}.post_attention_norm"}};

constexpr TensorName kGlmNames[] = {
    {"blk.{}.post_attention_norm", "model.layers.{}.post_self_attn_layernorm"},
    {"blk.{}.post_ffw_norm", "model.layers.{}.post_mlp_layernorm"},
    {"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_up_proj", Take::first_half},
    {"blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj", Take::second_half},
};

}  // namespace

extern const Architecture kGlm = {
    .name = "glm", .describe = describe_glm, .names = kGlmNames, .gguf = {.name = "chatglm", .fused_ffn = true}};
extern const Architecture kGlm4 = {
    .name = "glm4", .describe = describe_glm4, .names = kGlmNames, .gguf = {.name = "glm4", .fused_ffn = true}};

extern const Architecture kGlm4Moe = {
    .name = "glm4_moe", .describe = describe_glm4_moe, .gguf = {.name = "glm4moe", .names = kMoeGguf}};

}  // namespace millrace
