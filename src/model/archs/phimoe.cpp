#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Norms with biases; two experts, the second chosen and weighed without the first.
void describe_phimoe(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec,
      {.vocab = 32064, .width = 4096, .ffn = 6400, .layers = 32, .heads = 32, .kv_heads = 8, .context = 131072});
  const NormSpec norm = layer_norm(config, config.has("rms_norm_eps") ? "rms_norm_eps" : "layer_norm_eps", 1e-5);
  // Its files say how much longrope multiplies by under a name of their own.
  for (std::string_view key : {"rope_scaling", "rope_parameters"}) {
    Config rope = config.object(key);
    if (!rope.has("long_mscale") || rope.has("attention_factor")) continue;
    rope.set("attention_factor", rope.number("long_mscale", 1));
    config.set(key, rope.values());
  }
  GqaSpec gqa = attention(sizes);
  gqa.window = config.count_or_none("sliding_window", 0);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 1e6});
  MoeSpec moe = mixture(config, {.experts = 16, .chosen = 2, .width = sizes.ffn}, "intermediate_size");
  moe.router = {.score = RouterScore::sparse_mixer,
                .jitter = static_cast<float>(config.number("router_jitter_noise", 0.01))};
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, moe, norm));
  spec.final_norm = norm;
  spec.head_bias = config.flag("lm_head_bias", false);
}

}  // namespace

extern const Architecture kPhiMoe = {
    .name = "phimoe", .describe = describe_phimoe, .names = mixtral_names(), .gguf = {.name = "phimoe"}};

}  // namespace millrace
