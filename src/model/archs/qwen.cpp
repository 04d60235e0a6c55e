#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

void describe(Config& config, ModelSpec& spec, const Sizes& sizes, GqaSpec gqa) {
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  const int32_t window = config.flag("use_sliding_window", false) ? config.count_or_none("sliding_window", 4096) : 0;
  const int32_t first = config.count_or_none("max_window_layers", 28);
  const DenseSpec ffn = gated_ffn(config, sizes);
  for (bool sliding : sliding_layers(config, sizes.layers, [&](int32_t i) { return window > 0 && i >= first; })) {
    if (sliding && window == 0) config.refuse("use_sliding_window", "layer_types has sliding layers");
    gqa.window = sliding ? window : 0;
    spec.layers.push_back(pre_norm_layer(gqa, ffn, norm));
  }
  spec.final_norm = norm;
}

// Llama with biases on q, k and v.
void describe_qwen2(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec,
      {.vocab = 151936, .width = 4096, .ffn = 22016, .layers = 32, .heads = 32, .kv_heads = 32, .context = 32768});
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = true;
  describe(config, spec, sizes, gqa);
}

// No biases, but each head of q and k is normalised.
void describe_qwen3(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 151936,
                                  .width = 4096,
                                  .ffn = 22016,
                                  .layers = 32,
                                  .heads = 32,
                                  .kv_heads = 32,
                                  .head_dim = 128,
                                  .context = 32768});
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.qk_norm = rms_norm(config, "rms_norm_eps", 1e-6);
  describe(config, spec, sizes, gqa);
}

}  // namespace

extern const Architecture kQwen2 = {.name = "qwen2", .describe = describe_qwen2, .gguf = {.name = "qwen2"}};
extern const Architecture kQwen3 = {.name = "qwen3", .describe = describe_qwen3, .gguf = {.name = "qwen3"}};

}  // namespace millrace
