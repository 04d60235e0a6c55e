#include <cmath>

#include "model/archs/list.h"
#include "model/archs/states.h"

namespace millrace {
namespace {

// How fast each head of a layer forgets: slower with the head's number, and in later layers.
std::vector<float> rates_of(int32_t heads, int32_t layer, int32_t layers) {
  const double share = 1 - layer / (layers - 1 + 1e-5) + 1e-5;
  std::vector<float> rates;
  for (int32_t head = 1; head <= heads; ++head)
    rates.push_back(static_cast<float>(-std::exp2(-8.0 * head / heads) * share));
  return rates;
}

// Linear attention that forgets, and attention in some layers; the stream goes on normed, both times it is normed.
void describe_minimax(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec,
      {.vocab = 32000, .width = 4096, .ffn = 14336, .layers = 32, .heads = 32, .kv_heads = 8, .context = 131072});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.window = config.count_or_none("sliding_window", 0);
  if (config.has("rotary_dim") && !config.has("rotary_dims"))
    config.set("rotary_dims", config.count("rotary_dim", sizes.head_dim));
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 1e6, .partial_allowed = true});
  MoeSpec moe = mixture(config, {.experts = 8, .chosen = 2, .width = sizes.ffn}, "intermediate_size");
  moe.router.normalise = true;
  auto factor = [&](std::string_view key) { return static_cast<float>(config.number(key, 1)); };
  for (std::string_view key : {"full_attn_beta_factor", "linear_attn_beta_factor", "mlp_beta_factor"}) {
    if (factor(key) != 1) config.refuse(key, "a half's result is added as it is");
  }
  const std::vector<std::string> types =
      layer_types(config, "layer_types", sizes.layers, {"linear_attention", "full_attention"},
                  [](int32_t i) { return (i + 1) % 2 == 0 ? "full_attention" : "linear_attention"; });
  for (int32_t i = 0; i < sizes.layers && static_cast<size_t>(i) < types.size(); ++i) {
    const bool attends = types[static_cast<size_t>(i)] == "full_attention";
    const DecaySpec decay = {.heads = sizes.heads,
                             .head_dim = sizes.head_dim,
                             .rates = rates_of(sizes.heads, i, sizes.layers),
                             .activation = moe.activation,
                             .norm = norm};
    LayerSpec layer = attends ? mixed_layer(gqa, moe, norm) : mixed_layer(decay, moe, norm);
    layer.stream_norms = true;
    layer.mixer_keep = factor(attends ? "full_attn_alpha_factor" : "linear_attn_alpha_factor");
    layer.ffn_keep = factor("mlp_alpha_factor");
    spec.layers.push_back(std::move(layer));
  }
  spec.final_norm = norm;
}

constexpr TensorName kMinimaxNames[] = {
    {"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
    {"blk.{}.attn_q", "model.layers.{}.self_attn.qkv_proj", Take::grouped_q},
    {"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"},
    {"blk.{}.attn_k", "model.layers.{}.self_attn.qkv_proj", Take::grouped_k},
    {"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
    {"blk.{}.attn_v", "model.layers.{}.self_attn.qkv_proj", Take::grouped_v},
    {"blk.{}.attn_gate", "model.layers.{}.self_attn.output_gate"},
    {"blk.{}.ssm_norm", "model.layers.{}.self_attn.norm"},
    {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
    {"blk.{}.attn_output", "model.layers.{}.self_attn.out_proj"},
    {"blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate"},
    {"blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.{}.w1", Take::per_expert},
    {"blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.{}.w3", Take::per_expert},
    {"blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.{}.w2", Take::per_expert},
};

// Queries, keys and values of linear attention lie head by head.
constexpr TensorName kMinimaxGgufNames[] = {
    {"blk.{}.attn_q", "blk.{}.attn_q"},        {"blk.{}.attn_q", "blk.{}.attn_qkv", Take::grouped_q},
    {"blk.{}.attn_k", "blk.{}.attn_k"},        {"blk.{}.attn_k", "blk.{}.attn_qkv", Take::grouped_k},
    {"blk.{}.attn_v", "blk.{}.attn_v"},        {"blk.{}.attn_v", "blk.{}.attn_qkv", Take::grouped_v},
    {"blk.{}.ssm_norm", "blk.{}.attn_norm_2"},
};

}  // namespace

extern const Architecture kMiniMax = {.name = "minimax",
                                      .describe = describe_minimax,
                                      .names = kMinimaxNames,
                                      .gguf = {.name = "minimax-01", .names = kMinimaxGgufNames}};

}  // namespace millrace
