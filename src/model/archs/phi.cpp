#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Parallel halves that share one norm, biases everywhere, half of each head turns.
void describe_phi(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec, {.vocab = 51200, .width = 2048, .ffn = 8192, .layers = 24, .heads = 32});
  const NormSpec norm = layer_norm(config, "layer_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = true;
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .partial = 0.5, .partial_allowed = true});
  if (config.flag("qk_layernorm", false)) gqa.qk_norm = norm;
  DenseSpec ffn = plain_ffn(config, sizes, "hidden_act", "gelu_new");
  ffn.up_bias = ffn.down_bias = true;
  spec.layers.assign(static_cast<size_t>(sizes.layers),
                     {.mixer = gqa, .ffn = ffn, .mixer_norm = norm, .parallel = true, .shared_norm = true});
  spec.final_norm = norm;
  spec.head_bias = true;
}

void describe_phi3(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec, {.vocab = 32064, .width = 3072, .ffn = 8192, .layers = 32, .heads = 32, .context = 4096});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  if (!config.has("original_max_position_embeddings")) config.set("original_max_position_embeddings", 4096);
  // Its first files called longrope "su" or "yarn".
  for (std::string_view key : {"rope_scaling", "rope_parameters"}) {
    Config rope = config.object(key);
    if (rope.text("rope_type", rope.text("type", "")) != "yarn") continue;
    rope.set("rope_type", "longrope");
    config.set(key, rope.values());
  }
  GqaSpec gqa = attention(sizes);
  gqa.window = config.count_or_none("sliding_window", 0);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .partial_allowed = true});
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, gated_ffn(config, sizes), norm));
  spec.final_norm = norm;
}

constexpr TensorName kPhiNames[] = {
    {"output_norm", "model.final_layernorm"},
    {"blk.{}.attn_output", "model.layers.{}.self_attn.dense"},
    {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm"},
    {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm"},
    {"blk.{}.ffn_up", "model.layers.{}.mlp.fc1"},
    {"blk.{}.ffn_down", "model.layers.{}.mlp.fc2"},
};

constexpr TensorName kPhi3Names[] = {
    {"blk.{}.attn_q", "model.layers.{}.self_attn.qkv_proj", Take::q},
    {"blk.{}.attn_k", "model.layers.{}.self_attn.qkv_proj", Take::k},
    {"blk.{}.attn_v", "model.layers.{}.self_attn.qkv_proj", Take::v},
    {"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_up_proj", Take::first_half},
    {"blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj", Take::second_half},
};

}  // namespace

extern const Architecture kPhi = {
    .name = "phi", .describe = describe_phi, .names = kPhiNames, .gguf = {.name = "phi2", .biased = true}};
extern const Architecture kPhi3 = {.name = "phi3",
                                   .describe = describe_phi3,
                                   .names = kPhi3Names,
                                   .gguf = {.name = "phi3", .fused_qkv = true, .fused_ffn = true}};

}  // namespace millrace
