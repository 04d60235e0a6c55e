#include <algorithm>

#include "model/archs/list.h"
#include "model/archs/states.h"

namespace millrace {
namespace {

// The old way to say the types of layers: a letter each.
std::string type_of(Config& config, const std::string& pattern, int32_t layer) {
  const char letter = static_cast<size_t>(layer) < pattern.size() ? pattern[static_cast<size_t>(layer)] : '?';
  if (letter == 'M') return "mamba";
  if (letter == '*') return "attention";
  if (letter == '-') return "mlp";
  if (letter == 'E') return "moe";
  config.refuse("hybrid_override_pattern", fmt::format("expected M, *, - or E for layer {}", layer));
  return "mamba";
}

// Experts without gates, and one that every token passes.
MoeSpec experts_of(Config& config, const Sizes& sizes) {
  MoeSpec moe = mixture(config, {.experts = 8, .chosen = 2, .width = sizes.ffn});
  moe.activation = activation(config, "mlp_hidden_act", "relu2");
  moe.gated = false;
  moe.router = grouped_router(config);
  if (config.count_or_none("n_shared_experts", 1) > 0)
    moe.shared_width = config.count("moe_shared_expert_intermediate_size", moe.width);
  if (config.count_or_none("moe_latent_size", 0) > 0)
    config.refuse("moe_latent_size", "experts in a stream narrower than the model's are not built");
  if (config.flag("mlp_bias", false)) config.refuse("mlp_bias", "its experts have no biases");
  return moe;
}

// Every layer is one half: Mamba 2, attention without rotation, a feed-forward part without a gate, or experts.
void describe_nemotron_h(Config& config, ModelSpec& spec) {
  if (!config.has("num_hidden_layers")) {
    const Json* types = find(config.values(), "layers_block_type");
    const size_t layers = types != nullptr && types->is_array() ? types->get_array().size()
                                                                : config.text("hybrid_override_pattern", "").size();
    if (layers > 0) config.set("num_hidden_layers", static_cast<int64_t>(layers));
  }
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 131072,
                                  .width = 4096,
                                  .ffn = 21504,
                                  .layers = 52,
                                  .heads = 32,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .context = 4096});
  const NormSpec norm = rms_norm(config, "layer_norm_epsilon", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  SsmSpec ssm = mamba2_mixer(config, sizes,
                             {.heads = "mamba_num_heads",
                              .head_dim = "mamba_head_dim",
                              .state = "ssm_state_size",
                              .conv = "conv_kernel",
                              .groups = "n_groups",
                              .expand = "expand",
                              .bias = "use_bias",
                              .conv_bias = "use_conv_bias",
                              .usual_groups = 8});
  ssm.norm = norm;
  ssm.norm_groups = ssm.groups;
  // Steps have a least size whatever the limits say.
  ssm.least_step = std::max(ssm.least_step, static_cast<float>(config.number("time_step_min", 0.001)));
  DenseSpec ffn = plain_ffn(config, sizes, "mlp_hidden_act", "relu2");
  ffn.up_bias = ffn.down_bias = config.flag("mlp_bias", false);
  const std::string pattern = config.text("hybrid_override_pattern", "");
  const std::vector<std::string> types =
      layer_types(config, "layers_block_type", sizes.layers,
                  {"mamba", "linear_attention", "attention", "full_attention", "mlp", "moe"},
                  [&](int32_t i) { return type_of(config, pattern, i); });
  for (const std::string& type : types) {
    if (type == "mlp") {
      spec.layers.push_back(ffn_layer(ffn, norm));
    } else if (type == "moe") {
      spec.architecture = "nemotron_h_moe";  // GGUF has a name of its own for it
      spec.layers.push_back(ffn_layer(experts_of(config, sizes), norm));
    } else {
      const bool attends = type == "attention" || type == "full_attention";
      spec.layers.push_back(attends ? mixer_layer(gqa, norm) : mixer_layer(ssm, norm));
    }
  }
  spec.final_norm = norm;
}

constexpr TensorName kNemotronHNames[] = {
    {"token_embd", "backbone.embeddings"},
    {"output_norm", "backbone.norm_f"},
    {"blk.{}.attn_norm", "backbone.layers.{}.norm"},
    {"blk.{}.ffn_norm", "backbone.layers.{}.norm"},
    {"blk.{}.ssm_in", "backbone.layers.{}.mixer.in_proj"},
    {"blk.{}.ssm_conv1d", "backbone.layers.{}.mixer.conv1d"},
    {"blk.{}.ssm_conv1d_b", "backbone.layers.{}.mixer.conv1d.bias", Take::whole, true},
    {"blk.{}.ssm_dt_b", "backbone.layers.{}.mixer.dt_bias", Take::whole, true},
    {"blk.{}.ssm_a", "backbone.layers.{}.mixer.A_log", Take::whole, true, false, Change::minus_exp},
    {"blk.{}.ssm_d", "backbone.layers.{}.mixer.D", Take::whole, true},
    {"blk.{}.ssm_norm", "backbone.layers.{}.mixer.norm"},
    {"blk.{}.ssm_out", "backbone.layers.{}.mixer.out_proj"},
    {"blk.{}.attn_q", "backbone.layers.{}.mixer.q_proj"},
    {"blk.{}.attn_k", "backbone.layers.{}.mixer.k_proj"},
    {"blk.{}.attn_v", "backbone.layers.{}.mixer.v_proj"},
    {"blk.{}.attn_output", "backbone.layers.{}.mixer.o_proj"},
    {"blk.{}.ffn_up", "backbone.layers.{}.mixer.up_proj"},
    {"blk.{}.ffn_down", "backbone.layers.{}.mixer.down_proj"},
    {"blk.{}.ffn_gate_inp", "backbone.layers.{}.mixer.gate"},
    {"blk.{}.exp_probs_b", "backbone.layers.{}.mixer.gate.e_score_correction_bias", Take::whole, true},
    {"blk.{}.ffn_up_exps", "backbone.layers.{}.mixer.experts.{}.up_proj", Take::per_expert},
    {"blk.{}.ffn_up_exps", "backbone.layers.{}.mixer.experts.up_proj", Take::whole, true},
    {"blk.{}.ffn_down_exps", "backbone.layers.{}.mixer.experts.{}.down_proj", Take::per_expert},
    {"blk.{}.ffn_down_exps", "backbone.layers.{}.mixer.experts.down_proj", Take::whole, true},
    {"blk.{}.ffn_up_shexp", "backbone.layers.{}.mixer.shared_experts.up_proj"},
    {"blk.{}.ffn_down_shexp", "backbone.layers.{}.mixer.shared_experts.down_proj"},
};

constexpr TensorName kNemotronHGgufNames[] = {
    {"blk.{}.ffn_norm", "blk.{}.attn_norm"},
    {"blk.{}.ssm_conv1d_b", "blk.{}.ssm_conv1d.bias", Take::whole, true},
    {"blk.{}.ssm_dt_b", "blk.{}.ssm_dt.bias", Take::whole, true},
    {"blk.{}.ssm_a", "blk.{}.ssm_a", Take::whole, true},
    {"blk.{}.ssm_d", "blk.{}.ssm_d", Take::whole, true},
};

}  // namespace

extern const Architecture kNemotronH = {.name = "nemotron_h",
                                        .describe = describe_nemotron_h,
                                        .names = kNemotronHNames,
                                        .gguf = {.name = "nemotron_h", .names = kNemotronHGgufNames}};
extern const Architecture kNemotronHMoe = {.name = "nemotron_h_moe",
                                           .describe = describe_nemotron_h,
                                           .names = kNemotronHNames,
                                           .gguf = {.name = "nemotron_h_moe", .names = kNemotronHGgufNames}};

}  // namespace millrace
