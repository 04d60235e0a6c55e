#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Norms after each half instead of before, heads of q and k normalised; where some layers have a window, only those
// turn.
void describe_exaone4(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec, {.vocab = 102400, .width = 4096, .ffn = 16384, .layers = 32, .heads = 32, .kv_heads = 32});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qk_norm = norm;
  const int32_t rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  const int32_t window = config.count_or_none("sliding_window", 4096);
  // A number is a period; "LLLG" is one written out.
  int32_t period = 4;
  if (const Json* pattern = find(config.values(), "sliding_window_pattern");
      pattern != nullptr && pattern->is_string()) {
    period = static_cast<int32_t>(pattern->get_string().size());
    if (pattern->get_string() != std::string(static_cast<size_t>(std::max(0, period - 1)), 'L') + "G") {
      config.refuse("sliding_window_pattern", "expected a number or a pattern such as LLLG");
    }
  } else {
    period = config.count_or_none("sliding_window_pattern", 4);
  }
  for (bool sliding : sliding_layers(config, sizes.layers,
                                     [&](int32_t i) { return window > 0 && period > 0 && (i + 1) % period != 0; })) {
    if (sliding && window == 0) config.refuse("sliding_window", "layer_types has sliding layers");
    gqa.window = sliding ? window : 0;
    gqa.rope = sliding || window == 0 ? rope : -1;
    spec.layers.push_back(
        {.mixer = gqa, .ffn = gated_ffn(config, sizes), .mixer_post_norm = norm, .ffn_post_norm = norm});
  }
  spec.final_norm = norm;
}

constexpr TensorName kExaone4Names[] = {
    {"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
};

}  // namespace

extern const Architecture kExaone4 = {
    .name = "exaone4", .describe = describe_exaone4, .names = kExaone4Names, .gguf = {.name = "exaone4"}};

}  // namespace millrace
