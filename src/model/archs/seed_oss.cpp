#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

void describe_seed_oss(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 155136,
                                  .width = 4096,
                                  .ffn = 27648,
                                  .layers = 64,
                                  .heads = 80,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .context = 524288});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = config.flag("attention_bias", true);
  gqa.out_bias = config.flag("attention_out_bias", false);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  DenseSpec ffn = gated_ffn(config, sizes);
  ffn.up_bias = ffn.down_bias = config.flag("mlp_bias", false);
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, ffn, norm));
  spec.final_norm = norm;
}

constexpr TensorName kSeedOssGgufNames[] = {{"blk.{}.ffn_norm", "blk.{}.post_attention_norm"}};

}  // namespace

extern const Architecture kSeedOss = {
    .name = "seed_oss", .describe = describe_seed_oss, .gguf = {.name = "seed_oss", .names = kSeedOssGgufNames}};

}  // namespace millrace
