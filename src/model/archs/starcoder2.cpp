#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

void describe_starcoder2(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 49152,
                                  .width = 3072,
                                  .ffn = 12288,
                                  .layers = 30,
                                  .heads = 24,
                                  .kv_heads = 2,
                                  .context = 4096,
                                  .tied = true});
  const NormSpec norm = layer_norm(config, "norm_epsilon", 1e-5);
  const bool biased = config.flag("use_bias", true);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = biased;
  gqa.window = config.count_or_none("sliding_window", 0);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  DenseSpec ffn = plain_ffn(config, sizes, "hidden_act", "gelu_pytorch_tanh");
  ffn.up_bias = ffn.down_bias = biased;
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, ffn, norm));
  spec.final_norm = norm;
}

constexpr TensorName kStarcoder2Names[] = {
    {"blk.{}.ffn_up", "model.layers.{}.mlp.c_fc"},
    {"blk.{}.ffn_down", "model.layers.{}.mlp.c_proj"},
};

}  // namespace

extern const Architecture kStarcoder2 = {
    .name = "starcoder2", .describe = describe_starcoder2, .names = kStarcoder2Names, .gguf = {.name = "starcoder2"}};

}  // namespace millrace
