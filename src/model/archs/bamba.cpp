// Mamba 2 layers with attention among or beside them: Bamba, Falcon H1, Granite 4.
#include <algorithm>
#include <cmath>

#include "model/archs/list.h"
#include "model/archs/states.h"

namespace millrace {
namespace {

Sizes read_hybrid_sizes(Config& config, ModelSpec& spec) {
  return read_sizes(
      config, spec,
      {.vocab = 128000, .width = 4096, .ffn = 14336, .layers = 32, .heads = 32, .kv_heads = 8, .context = 262144});
}

void describe_bamba(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_hybrid_sizes(config, spec);
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .partial = 0.5, .partial_allowed = true});
  SsmSpec ssm = mamba2_mixer(config, sizes, {.usual_state = 256});
  ssm.norm = norm;
  DenseSpec ffn = gated_ffn(config, sizes);
  ffn.up_bias = ffn.down_bias = config.flag("mlp_bias", false);
  const std::vector<int64_t> attending = config.integers("attn_layer_indices", 0);
  for (int32_t i = 0; i < sizes.layers; ++i) {
    const bool attends = std::find(attending.begin(), attending.end(), i) != attending.end();
    spec.layers.push_back(attends ? mixed_layer(gqa, ffn, norm) : mixed_layer(ssm, ffn, norm));
  }
  spec.final_norm = norm;
}

// Attention and Mamba read one norm and are added; everything has a factor. Factors of a product's input are those of
// its results, and factors of queries and keys those of their scores.
void describe_falcon_h1(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_hybrid_sizes(config, spec);
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  auto number = [&](std::string_view key) { return static_cast<float>(config.number(key, 1)); };
  const float into = number("attention_in_multiplier");
  GqaSpec gqa = attention(sizes);
  if (config.flag("attention_bias", false)) config.refuse("attention_bias", "attention without biases is built");
  gqa.scale *= into * into * number("key_multiplier");
  gqa.out_scale = into * number("attention_out_multiplier");
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 100000});
  SsmSpec ssm = mamba2_mixer(config, sizes, {.usual_state = 256});
  if (config.has("mamba_d_ssm")) ssm.inner = config.count("mamba_d_ssm", ssm.inner);
  if (ssm.bias) config.refuse("mamba_proj_bias", "products without biases are built");
  if (config.flag("mamba_rms_norm", false)) {
    ssm.norm = norm;
    ssm.norm_groups = ssm.groups;
    ssm.norm_before_gate = config.flag("mamba_norm_before_gate", true);
  }
  const std::vector<float> parts = config.numbers("ssm_multipliers", 5);
  for (size_t i = 0; i < parts.size(); ++i) ssm.part_scales[i] = parts[i];
  for (float& scale : ssm.part_scales) scale *= number("ssm_in_multiplier");
  ssm.out_scale = number("ssm_out_multiplier");
  DenseSpec ffn = gated_ffn(config, sizes);
  ffn.up_bias = ffn.down_bias = config.flag("mlp_bias", false);
  if (const std::vector<float> two = config.numbers("mlp_multipliers", 2); !two.empty()) {
    ffn.gate_scale = two[0];
    ffn.out_scale = two[1];
  }
  LayerSpec layer = mixed_layer(gqa, ffn, norm);
  layer.beside = ssm;
  spec.layers.assign(static_cast<size_t>(sizes.layers), layer);
  spec.final_norm = norm;
  spec.embed_scale = number("embedding_multiplier");
  spec.logit_scale = number("lm_head_multiplier");
}

// Granite's multipliers; experts beside a part that every token passes.
void describe_granite_hybrid(Config& config, ModelSpec& spec) {
  const Sizes sizes =
      read_sizes(config, spec, {.vocab = 32000, .width = 4096, .ffn = 11008, .layers = 32, .heads = 32});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  GqaSpec gqa = attention(sizes);
  gqa.scale = static_cast<float>(config.number("attention_multiplier", 1));
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  if (config.has("position_embedding_type") && config.text("position_embedding_type", "") == "rope")
    gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  SsmSpec ssm = mamba2_mixer(config, sizes, {.usual_state = 256});
  ssm.norm = norm;
  const int32_t shared = config.count_or_none("shared_intermediate_size", 1024);
  FfnSpec ffn = DenseSpec{.width = shared, .activation = activation(config, "hidden_act", "silu")};
  if (config.count_or_none("num_local_experts", 8) > 0) {
    MoeSpec moe = mixture(config, {.experts = 8, .chosen = 2, .width = sizes.ffn}, "intermediate_size");
    moe.router.score = RouterScore::softmax_chosen;
    moe.shared_width = shared;
    ffn = moe;
  }
  const std::vector<std::string> types =
      layer_types(config, "layer_types", sizes.layers, {"mamba", "linear_attention", "attention", "full_attention"},
                  [](int32_t) { return "mamba"; });
  for (const std::string& type : types) {
    const bool attends = type == "attention" || type == "full_attention";
    LayerSpec layer = attends ? mixed_layer(gqa, ffn, norm) : mixed_layer(ssm, ffn, norm);
    layer.residual_scale = static_cast<float>(config.number("residual_multiplier", 1));
    spec.layers.push_back(std::move(layer));
  }
  spec.final_norm = norm;
  spec.embed_scale = static_cast<float>(config.number("embedding_multiplier", 1));
  spec.logit_scale = static_cast<float>(1 / config.positive("logits_scaling", 1));
}

constexpr TensorName kBambaNames[] = {
    {"output_norm", "model.final_layernorm"},
    {"output_norm", "model.norm"},
    {"blk.{}.ssm_in", "model.layers.{}.mamba.in_proj"},
    {"blk.{}.ssm_conv1d", "model.layers.{}.mamba.conv1d"},
    {"blk.{}.ssm_conv1d_b", "model.layers.{}.mamba.conv1d.bias", Take::whole, true},
    {"blk.{}.ssm_x", "model.layers.{}.mamba.x_proj"},
    {"blk.{}.ssm_dt_norm", "model.layers.{}.mamba.dt_layernorm"},
    {"blk.{}.ssm_b_norm", "model.layers.{}.mamba.b_layernorm"},
    {"blk.{}.ssm_c_norm", "model.layers.{}.mamba.c_layernorm"},
    {"blk.{}.ssm_dt", "model.layers.{}.mamba.dt_proj"},
    {"blk.{}.ssm_dt_b", "model.layers.{}.mamba.dt_bias", Take::whole, true},
    {"blk.{}.ssm_a", "model.layers.{}.mamba.A_log", Take::whole, true, false, Change::minus_exp},
    {"blk.{}.ssm_d", "model.layers.{}.mamba.D", Take::whole, true},
    {"blk.{}.ssm_norm", "model.layers.{}.mamba.norm"},
    {"blk.{}.ssm_out", "model.layers.{}.mamba.out_proj"},
    {"blk.{}.ffn_norm", "model.layers.{}.pre_ff_layernorm"},
    {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {"blk.{}.ffn_gate", "model.layers.{}.feed_forward.gate_proj"},
    {"blk.{}.ffn_gate", "model.layers.{}.shared_mlp.input_linear", Take::first_half},
    {"blk.{}.ffn_up", "model.layers.{}.feed_forward.up_proj"},
    {"blk.{}.ffn_up", "model.layers.{}.shared_mlp.input_linear", Take::second_half},
    {"blk.{}.ffn_down", "model.layers.{}.feed_forward.down_proj"},
    {"blk.{}.ffn_down", "model.layers.{}.shared_mlp.output_linear"},
    {"blk.{}.ffn_gate_inp", "model.layers.{}.feed_forward.router"},
    {"blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer"},
    {"blk.{}.ffn_gate_exps", "model.layers.{}.feed_forward.experts.{}.gate_proj", Take::per_expert},
    {"blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.input_linear", Take::first_half},
    {"blk.{}.ffn_up_exps", "model.layers.{}.feed_forward.experts.{}.up_proj", Take::per_expert},
    {"blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.input_linear", Take::second_half},
    {"blk.{}.ffn_down_exps", "model.layers.{}.feed_forward.experts.{}.down_proj", Take::per_expert},
    {"blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.output_linear"},
    {"blk.{}.ffn_gate_shexp", "model.layers.{}.shared_mlp.input_linear", Take::first_half},
    {"blk.{}.ffn_up_shexp", "model.layers.{}.shared_mlp.input_linear", Take::second_half},
    {"blk.{}.ffn_down_shexp", "model.layers.{}.shared_mlp.output_linear"},
};

// In files of Falcon H1 the second norm's name has no ending.
constexpr TensorName kFalconH1GgufNames[] = {
    {"blk.{}.ffn_norm", "blk.{}.ffn_norm", Take::whole, true},
    {"blk.{}.ffn_norm", "blk.{}.ffn_norm"},
    {"blk.{}.ssm_conv1d_b", "blk.{}.ssm_conv1d.bias", Take::whole, true},
    {"blk.{}.ssm_dt_b", "blk.{}.ssm_dt.bias", Take::whole, true},
    {"blk.{}.ssm_a", "blk.{}.ssm_a", Take::whole, true},
    {"blk.{}.ssm_d", "blk.{}.ssm_d", Take::whole, true},
};

}  // namespace

std::span<const TensorName> hybrid_names() { return kBambaNames; }

extern const Architecture kFalconH1 = {.name = "falcon_h1",
                                       .describe = describe_falcon_h1,
                                       .names = kBambaNames,
                                       .gguf = {.name = "falcon-h1", .names = kFalconH1GgufNames}};
extern const Architecture kGraniteHybrid = {
    .name = "granitemoehybrid",
    .describe = describe_granite_hybrid,
    .names = kBambaNames,
    .gguf = {.name = "granitehybrid", .permuted = true, .names = state_gguf_names()}};
// Its files are Granite's without the multipliers.
extern const Architecture kBamba = {.name = "bamba",
                                    .describe = describe_bamba,
                                    .names = kBambaNames,
                                    .gguf = {.name = "granitehybrid", .permuted = true, .names = state_gguf_names()}};

}  // namespace millrace
