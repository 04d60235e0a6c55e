#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Llama, but every fourth layer does not turn.
void describe_smollm3(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 128256,
                                  .width = 2048,
                                  .ffn = 11008,
                                  .layers = 36,
                                  .heads = 16,
                                  .kv_heads = 4,
                                  .context = 32768,
                                  .tied = true});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  const int32_t rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 2e6});
  DenseSpec ffn = gated_ffn(config, sizes);
  ffn.up_bias = ffn.down_bias = config.flag("mlp_bias", false);

  const auto turns = config.integers("no_rope_layers", static_cast<size_t>(sizes.layers));  // 1: the layer turns
  const int32_t interval = config.count("no_rope_layer_interval", 4);
  auto turned = [&](int32_t i) { return turns.empty() ? (i + 1) % interval != 0 : turns[static_cast<size_t>(i)] != 0; };
  const int32_t window = config.flag("use_sliding_window", false) ? config.count_or_none("sliding_window", 0) : 0;
  const std::vector<bool> sliding =
      sliding_layers(config, sizes.layers, [&](int32_t i) { return window > 0 && !turned(i); });
  for (int32_t i = 0; i < sizes.layers; ++i) {
    const bool here = sliding[static_cast<size_t>(i)];
    if (here && window == 0) config.refuse("use_sliding_window", "layer_types has sliding layers");
    gqa.rope = turned(i) ? rope : -1;
    gqa.window = here ? window : 0;
    spec.layers.push_back(pre_norm_layer(gqa, ffn, norm));
  }
  spec.final_norm = norm;
}

}  // namespace

extern const Architecture kSmolLm3 = {
    .name = "smollm3", .describe = describe_smollm3, .gguf = {.name = "smollm3", .permuted = true}};

}  // namespace millrace
