#include "model/archs/list.h"
#include "model/archs/mla.h"

namespace millrace {
namespace {

// What differs between the generations.
struct DeepSeek {
  Sizes sizes;
  MoeSpec experts;
  int32_t shared, dense_layers;
};

void describe_deepseek(Config& config, ModelSpec& spec, const DeepSeek& usual, const RouterSpec& router) {
  const Sizes sizes = read_sizes(config, spec, usual.sizes);
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  const MlaSpec mla = latent_attention(config, spec, sizes,
                                       {.q_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .v_dim = 128},
                                       config.flag("rope_interleave", true));
  MoeSpec moe = mixture(config, usual.experts);
  moe.router = router;
  const int64_t shared = int64_t{config.count_or_none("n_shared_experts", usual.shared)} * moe.width;
  if (shared > INT32_MAX) return config.refuse("n_shared_experts", "more than can be counted");
  moe.shared_width = static_cast<int32_t>(shared);
  const int32_t dense = config.count_or_none("first_k_dense_replace", usual.dense_layers);
  for (int32_t i = 0; i < sizes.layers; ++i) {
    LayerSpec layer = {.mixer = mla, .ffn = moe, .mixer_norm = norm, .ffn_norm = norm};
    if (i < dense) layer.ffn = gated_ffn(config, sizes);
    spec.layers.push_back(std::move(layer));
  }
  spec.final_norm = norm;
}

// Scores are a softmax, and as they are they weigh; groups by their best expert.
void describe_deepseek2(Config& config, ModelSpec& spec) {
  RouterSpec router = {.scale = static_cast<float>(config.number("routed_scaling_factor", 1))};
  if (config.text("topk_method", "greedy") == "group_limited_greedy") {
    router.groups = config.count("n_group", 8);
    router.chosen_groups = config.count("topk_group", 3);
  }
  describe_deepseek(config, spec,
                    {.sizes = {.vocab = 102400,
                               .width = 5120,
                               .ffn = 12288,
                               .layers = 60,
                               .heads = 128,
                               .head_dim = 128,
                               .context = 163840},
                     .experts = {.experts = 160, .chosen = 6, .width = 1536},
                     .shared = 2,
                     .dense_layers = 1},
                    router);
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
                     .experts = {.experts = 256, .chosen = 8, .width = 2048},
                     .shared = 1,
                     .dense_layers = 3},
                    grouped_router(config));
}

}  // namespace

extern const Architecture kDeepSeek2 = {
    .name = "deepseek_v2", .describe = describe_deepseek2, .gguf = {.name = "deepseek2"}};
// In GGUF both generations are deepseek2; how experts are scored tells which.
extern const Architecture kDeepSeek3 = {
    .name = "deepseek_v3", .describe = describe_deepseek3, .gguf = {.name = "deepseek2"}};

}  // namespace millrace
