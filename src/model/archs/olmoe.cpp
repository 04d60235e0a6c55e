#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Norms over the whole of q and k, small experts in every layer.
void describe_olmoe(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec,
      {.vocab = 50304, .width = 2048, .ffn = 1024, .layers = 16, .heads = 16, .kv_heads = 16, .context = 4096});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.clip = static_cast<float>(config.number_or_none("clip_qkv", 0));
  gqa.qk_norm = norm;
  gqa.qk_norm_per_head = false;
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  MoeSpec moe = mixture(config, {.experts = 64, .chosen = 8, .width = sizes.ffn}, "intermediate_size");
  moe.router.normalise = config.flag("norm_topk_prob", false);
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, moe, norm));
  spec.final_norm = norm;
}

}  // namespace

extern const Architecture kOlmoe = {.name = "olmoe", .describe = describe_olmoe, .gguf = {.name = "olmoe"}};

}  // namespace millrace
