// Qwen3-Next and Qwen 3.5: the gated delta rule in three layers of four, attention with a gate in the fourth.
#include <algorithm>

#include "model/archs/list.h"
#include "model/archs/states.h"

namespace millrace {
namespace {

void describe_layers(Config& config, ModelSpec& spec, const Sizes& sizes,
                     const std::function<FfnSpec(int32_t layer)>& ffn_of) {
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  GqaSpec gqa = attention(sizes);
  gqa.gated = true;
  gqa.qk_norm = norm;
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  if (gqa.qkv_bias) config.refuse("attention_bias", "gated attention has no biases");
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .partial = 0.25, .partial_allowed = true});
  const DeltaSpec delta = {.k_heads = config.count("linear_num_key_heads", 16),
                           .v_heads = config.count("linear_num_value_heads", 32),
                           .k_dim = config.count("linear_key_head_dim", 128),
                           .v_dim = config.count("linear_value_head_dim", 128),
                           .conv = config.count("linear_conv_kernel_dim", 4),
                           .norm = norm,
                           .striped = config.flag("linear_value_heads_striped", false)};
  const int32_t every = config.count("full_attention_interval", 4);
  const std::vector<std::string> types =
      layer_types(config, "layer_types", sizes.layers, {"linear_attention", "full_attention"},
                  [&](int32_t i) { return (i + 1) % every == 0 ? "full_attention" : "linear_attention"; });
  for (int32_t i = 0; i < sizes.layers && static_cast<size_t>(i) < types.size(); ++i) {
    const bool attends = types[static_cast<size_t>(i)] == "full_attention";
    spec.layers.push_back(attends ? mixed_layer(gqa, ffn_of(i), norm) : mixed_layer(delta, ffn_of(i), norm));
  }
  spec.final_norm = norm;
}

void describe_mixed(Config& config, ModelSpec& spec, const Sizes& usual, const MoeSpec& usual_experts) {
  const Sizes sizes = read_sizes(config, spec, usual);
  MoeSpec moe = mixture(config, usual_experts);
  moe.shared_width = config.count_or_none("shared_expert_intermediate_size", 512);
  moe.shared_gate = true;
  moe.router.normalise = config.flag("norm_topk_prob", true);
  const DenseSpec dense = gated_ffn(config, sizes);
  const int32_t every = config.count("decoder_sparse_step", 1);
  const std::vector<int64_t> dense_layers = config.integers("mlp_only_layers", 0);
  describe_layers(config, spec, sizes, [&](int32_t layer) -> FfnSpec {
    const bool listed = std::find(dense_layers.begin(), dense_layers.end(), layer) != dense_layers.end();
    if (listed || (layer + 1) % every != 0) return dense;
    return moe;
  });
}

void describe_qwen3_next(Config& config, ModelSpec& spec) {
  describe_mixed(config, spec,
                 {.vocab = 151936,
                  .width = 2048,
                  .ffn = 5632,
                  .layers = 48,
                  .heads = 16,
                  .kv_heads = 2,
                  .head_dim = 256,
                  .context = 32768},
                 {.experts = 512, .chosen = 10, .width = 512});
}

void describe_qwen35_moe(Config& config, ModelSpec& spec) {
  describe_mixed(config, spec,
                 {.vocab = 248320,
                  .width = 2048,
                  .ffn = 5632,
                  .layers = 40,
                  .heads = 16,
                  .kv_heads = 2,
                  .head_dim = 256,
                  .context = 32768},
                 {.experts = 256, .chosen = 8, .width = 512});
}

void describe_qwen35(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 248320,
                                  .width = 4096,
                                  .ffn = 12288,
                                  .layers = 32,
                                  .heads = 16,
                                  .kv_heads = 4,
                                  .head_dim = 256,
                                  .context = 32768});
  const DenseSpec ffn = gated_ffn(config, sizes);
  describe_layers(config, spec, sizes, [&](int32_t) { return ffn; });
}

constexpr TensorName kQwenNextNames[] = {
    {"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", Take::head_q},
    {"blk.{}.attn_gate", "model.layers.{}.self_attn.q_proj", Take::head_gate},
    {"blk.{}.attn_gate", "model.layers.{}.linear_attn.in_proj_qkvz", Take::delta_gate},
    {"blk.{}.attn_gate", "model.layers.{}.linear_attn.in_proj_z"},
    {"blk.{}.attn_qkv", "model.layers.{}.linear_attn.in_proj_qkvz", Take::delta_qkv},
    {"blk.{}.attn_qkv", "model.layers.{}.linear_attn.in_proj_qkv"},
    {"blk.{}.ssm_beta", "model.layers.{}.linear_attn.in_proj_ba", Take::delta_beta},
    {"blk.{}.ssm_beta", "model.layers.{}.linear_attn.in_proj_b"},
    {"blk.{}.ssm_alpha", "model.layers.{}.linear_attn.in_proj_ba", Take::delta_steps},
    {"blk.{}.ssm_alpha", "model.layers.{}.linear_attn.in_proj_a"},
    {"blk.{}.ssm_conv1d", "model.layers.{}.linear_attn.conv1d"},
    {"blk.{}.ssm_dt_b", "model.layers.{}.linear_attn.dt_bias", Take::whole, true},
    {"blk.{}.ssm_a", "model.layers.{}.linear_attn.A_log", Take::whole, true, false, Change::minus_exp},
    {"blk.{}.ssm_norm", "model.layers.{}.linear_attn.norm"},
    {"blk.{}.ssm_out", "model.layers.{}.linear_attn.out_proj"},
    {"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj", Take::per_expert},
    {"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.gate_up_proj", Take::first_half, true},
    {"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj", Take::per_expert},
    {"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.gate_up_proj", Take::second_half, true},
    {"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj", Take::per_expert},
    {"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.down_proj", Take::whole, true},
};

// Attention's gate lies in its queries' product, head by head; the delta rule's is a tensor of its own. The first files
// kept the products of the delta rule as Hugging Face does.
constexpr TensorName kQwenNextGgufNames[] = {
    {"blk.{}.attn_q", "blk.{}.attn_q", Take::head_q},
    {"blk.{}.attn_gate", "blk.{}.attn_gate"},
    {"blk.{}.attn_gate", "blk.{}.attn_q", Take::head_gate},
    {"blk.{}.attn_gate", "blk.{}.ssm_in", Take::delta_gate},
    {"blk.{}.attn_qkv", "blk.{}.attn_qkv"},
    {"blk.{}.attn_qkv", "blk.{}.ssm_in", Take::delta_qkv},
    {"blk.{}.ssm_beta", "blk.{}.ssm_ba", Take::delta_beta},
    {"blk.{}.ssm_alpha", "blk.{}.ssm_ba", Take::delta_steps},
    {"blk.{}.ssm_dt_b", "blk.{}.ssm_dt.bias", Take::whole, true},
    {"blk.{}.ssm_a", "blk.{}.ssm_a", Take::whole, true},
    {"blk.{}.ffn_norm", "blk.{}.post_attention_norm"},
};
// Qwen 3.5 has shares and steps in tensors of their own.
constexpr TensorName kGguf35Names[] = {
    {"blk.{}.attn_q", "blk.{}.attn_q", Take::head_q},
    {"blk.{}.attn_gate", "blk.{}.attn_gate"},
    {"blk.{}.attn_gate", "blk.{}.attn_q", Take::head_gate},
    {"blk.{}.ssm_dt_b", "blk.{}.ssm_dt.bias", Take::whole, true},
    {"blk.{}.ssm_a", "blk.{}.ssm_a", Take::whole, true},
    {"blk.{}.ffn_norm", "blk.{}.post_attention_norm"},
};
}  // namespace

extern const Architecture kQwen3Next = {.name = "qwen3_next",
                                        .describe = describe_qwen3_next,
                                        .names = kQwenNextNames,
                                        .norms_plus_one = true,
                                        .gguf = {.name = "qwen3next", .names = kQwenNextGgufNames}};
extern const Architecture kQwen35 = {.name = "qwen3_5_text",
                                     .describe = describe_qwen35,
                                     .names = kQwenNextNames,
                                     .norms_plus_one = true,
                                     .gguf = {.name = "qwen35", .names = kGguf35Names}};
extern const Architecture kQwen35Moe = {.name = "qwen3_5_moe_text",
                                        .describe = describe_qwen35_moe,
                                        .names = kQwenNextNames,
                                        .norms_plus_one = true,
                                        .gguf = {.name = "qwen35moe", .names = kGguf35Names}};

}  // namespace millrace
