#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Layer norms stored less one, squared ReLU without a gate, half of each head turns.
void describe_nemotron(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec, {.vocab = 256000, .width = 6144, .ffn = 24576, .layers = 32, .heads = 48, .context = 4096});
  const NormSpec norm = layer_norm(config, "norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .partial = 0.5, .partial_allowed = true});
  DenseSpec ffn = plain_ffn(config, sizes, "hidden_act", "relu2");
  ffn.up_bias = ffn.down_bias = config.flag("mlp_bias", false);
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, ffn, norm));
  spec.final_norm = norm;
}

}  // namespace

extern const Architecture kNemotron = {
    .name = "nemotron", .describe = describe_nemotron, .norms_plus_one = true, .gguf = {.name = "nemotron"}};

}  // namespace millrace
