#include <cmath>

#include "model/archs/common.h"
#include "model/archs/list.h"

// Models with latent attention, described so that they can be planned.
namespace millrace {
namespace {

// What differs between the generations, besides how experts are scored, which costs nothing worth counting.
struct DeepSeek {
  Sizes sizes;
  int32_t experts, chosen, expert_width, shared, dense_layers;
};

void describe_deepseek(Config& config, ModelSpec& spec, const DeepSeek& usual) {
  const Sizes sizes = read_sizes(config, spec, usual.sizes);
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  MlaSpec mla = {.heads = sizes.heads,
                 .q_rank = config.count_or_none("q_lora_rank", 1536),
                 .kv_rank = config.count("kv_lora_rank", 512),
                 .nope_dim = config.count("qk_nope_head_dim", 128),
                 .rope_dim = config.count("qk_rope_head_dim", 64),
                 .v_dim = config.count("v_head_dim", 128),
                 .norm = norm};
  mla.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(mla.nope_dim) + mla.rope_dim));
  mla.rope = add_rope(config, spec, {.head_dim = mla.rope_dim, .neighbours = true});
  const int32_t expert_width = config.count("moe_intermediate_size", usual.expert_width);
  const int64_t shared = int64_t{config.count_or_none("n_shared_experts", usual.shared)} * expert_width;
  if (shared > INT32_MAX) return config.refuse("n_shared_experts", "more than can be counted");
  const MoeSpec moe = {.experts = config.count("n_routed_experts", usual.experts),
                       .chosen = config.count("num_experts_per_tok", usual.chosen),
                       .width = expert_width,
                       .shared_width = static_cast<int32_t>(shared),
                       .activation = activation(config, "hidden_act", "silu")};
  const int32_t dense = config.count_or_none("first_k_dense_replace", usual.dense_layers);
  for (int32_t i = 0; i < sizes.layers; ++i) {
    LayerSpec layer = {.mixer = mla, .ffn = moe, .mixer_norm = norm, .ffn_norm = norm};
    if (i < dense) layer.ffn = gated_ffn(config, sizes);
    spec.layers.push_back(std::move(layer));
  }
  spec.final_norm = norm;
}

void describe_deepseek2(Config& config, ModelSpec& spec) {
  describe_deepseek(config, spec,
                    {.sizes = {.vocab = 102400,
                               .width = 5120,
                               .ffn = 12288,
                               .layers = 60,
                               .heads = 128,
                               .head_dim = 128,
                               .context = 163840},
                     .experts = 160,
                     .chosen = 6,
                     .expert_width = 1536,
                     .shared = 2,
                     .dense_layers = 1});
}

void describe_deepseek3(Config& config, ModelSpec& spec) {
  describe_deepseek(config, spec,
                    {.sizes = {.vocab = 129280,
                               .width = 7168,
                               .ffn = 18432,
                               .layers = 61,
                               .heads = 128,
                               .head_dim = 128,
                               .context = 163840},
                     .experts = 256,
                     .chosen = 8,
                     .expert_width = 2048,
                     .shared = 1,
                     .dense_layers = 3});
}

}  // namespace

extern const Architecture kDeepSeek2 = {.name = "deepseek_v2", .describe = describe_deepseek2};
extern const Architecture kDeepSeek3 = {.name = "deepseek_v3", .describe = describe_deepseek3};

}  // namespace millrace
