#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Llama with a window: over all layers (Mistral), or over those that layer_types names (Ministral).
void describe(Config& config, ModelSpec& spec, bool by_layer) {
  const Sizes sizes = read_sizes(
      config, spec,
      {.vocab = 32000, .width = 4096, .ffn = 14336, .layers = 32, .heads = 32, .kv_heads = 8, .context = 131072});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  const int32_t window = config.count_or_none("sliding_window", 4096);
  GqaSpec gqa = attention(sizes);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  const DenseSpec ffn = gated_ffn(config, sizes);
  std::vector<bool> sliding(static_cast<size_t>(sizes.layers), true);
  if (by_layer) sliding = sliding_layers(config, sizes.layers, [&](int32_t) { return window > 0; });
  for (bool here : sliding) {
    gqa.window = here ? window : 0;
    if (by_layer && here && window == 0) config.refuse("sliding_window", "layer_types has sliding layers");
    spec.layers.push_back(pre_norm_layer(gqa, ffn, norm));
  }
  spec.final_norm = norm;
}

void describe_mistral(Config& config, ModelSpec& spec) { describe(config, spec, false); }
void describe_ministral(Config& config, ModelSpec& spec) { describe(config, spec, true); }

}  // namespace

extern const Architecture kMistral = {
    .name = "mistral", .describe = describe_mistral, .gguf = {.name = "llama", .permuted = true}};
extern const Architecture kMinistral = {
    .name = "ministral", .describe = describe_ministral, .gguf = {.name = "llama", .permuted = true}};

}  // namespace millrace
