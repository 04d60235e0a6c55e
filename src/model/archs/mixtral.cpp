#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Mistral with eight experts in every layer, two of them for a token, which share its weight.
void describe_mixtral(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec,
      {.vocab = 32000, .width = 4096, .ffn = 14336, .layers = 32, .heads = 32, .kv_heads = 8, .context = 32768});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.window = config.count_or_none("sliding_window", 0);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 1e6});
  MoeSpec moe = mixture(config, {.experts = 8, .chosen = 2, .width = sizes.ffn}, "intermediate_size");
  moe.router.normalise = true;
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, moe, norm));
  spec.final_norm = norm;
}

// Norms over the whole of q and k, a part of each head turns, experts chosen by a sigmoid and a bias.
void describe_minimax_m2(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 200064,
                                  .width = 3072,
                                  .ffn = 1536,
                                  .layers = 62,
                                  .heads = 48,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .context = 196608});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  GqaSpec gqa = attention(sizes);
  if (config.flag("use_qk_norm", true)) gqa.qk_norm = norm;
  gqa.qk_norm_per_head = false;
  if (config.has("rotary_dim") && !config.has("rotary_dims"))
    config.set("rotary_dims", config.count("rotary_dim", sizes.head_dim));
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 5e6, .partial_allowed = true});
  MoeSpec moe = mixture(config, {.experts = 256, .chosen = 8, .width = sizes.ffn}, "intermediate_size");
  moe.router = {.score = RouterScore::sigmoid, .choice_bias = true, .normalise = true};
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, moe, norm));
  spec.final_norm = norm;
}

constexpr TensorName kMixtralNames[] = {
    {"blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate"},
    {"blk.{}.exp_probs_b", "model.layers.{}.block_sparse_moe.e_score_correction_bias", Take::whole, true},
    {"blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.{}.w1", Take::per_expert},
    {"blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.{}.w3", Take::per_expert},
    {"blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.{}.w2", Take::per_expert},
};

}  // namespace

std::span<const TensorName> mixtral_names() { return kMixtralNames; }

extern const Architecture kMixtral = {.name = "mixtral",
                                      .describe = describe_mixtral,
                                      .names = kMixtralNames,
                                      .gguf = {.name = "llama", .permuted = true}};
extern const Architecture kMiniMaxM2 = {
    .name = "minimax_m2", .describe = describe_minimax_m2, .names = kMixtralNames, .gguf = {.name = "minimax-m2"}};

}  // namespace millrace
