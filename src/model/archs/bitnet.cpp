#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// A norm before the output product of each half as well, and a gate of squared ReLU.
void describe_bitnet(Config& config, ModelSpec& spec) {
  const Sizes sizes =
      read_sizes(config, spec, {.vocab = 128256, .width = 2560, .ffn = 6912, .layers = 30, .heads = 20, .kv_heads = 5});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.out_norm = norm;
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 500000});
  DenseSpec ffn = gated_ffn(config, sizes, "hidden_act", "relu2");
  ffn.inner_norm = norm;
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, ffn, norm));
  spec.final_norm = norm;
}

constexpr TensorName kBitnetNames[] = {
    {"blk.{}.attn_sub_norm", "model.layers.{}.self_attn.attn_sub_norm"},
    {"blk.{}.ffn_sub_norm", "model.layers.{}.mlp.ffn_sub_norm"},
};

}  // namespace

extern const Architecture kBitNet = {
    .name = "bitnet", .describe = describe_bitnet, .names = kBitnetNames, .gguf = {.name = "bitnet"}};

}  // namespace millrace
