#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Llama whose neighbours turn together.
void describe_ernie4_5(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 103424,
                                  .width = 1024,
                                  .ffn = 3072,
                                  .layers = 18,
                                  .heads = 16,
                                  .kv_heads = 2,
                                  .head_dim = 128,
                                  .context = 131072,
                                  .tied = true});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  const bool biased = config.flag("use_bias", false);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = biased;
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 500000, .neighbours = true});
  DenseSpec ffn = gated_ffn(config, sizes);
  ffn.up_bias = ffn.down_bias = biased;
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, ffn, norm));
  spec.final_norm = norm;
}

}  // namespace

extern const Architecture kErnie45 = {.name = "ernie4_5", .describe = describe_ernie4_5, .gguf = {.name = "ernie4_5"}};

}  // namespace millrace
