#include <algorithm>
#include <cmath>

#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Scaled embeddings and norms stored less one, in all three generations.
Sizes begin(Config& config, ModelSpec& spec, const Sizes& usual) {
  const Sizes sizes = read_sizes(config, spec, usual);
  spec.embed_scale = static_cast<float>(std::sqrt(static_cast<double>(sizes.width)));
  spec.final_norm = rms_norm(config, "rms_norm_eps", 1e-6);
  spec.logit_softcap = 0;
  return sizes;
}

void describe_gemma(Config& config, ModelSpec& spec) {
  if (config.has("use_bidirectional_attention") && config.flag("use_bidirectional_attention", false)) {
    config.refuse("use_bidirectional_attention", "attention must be causal");
  }
  const Sizes sizes = begin(config, spec,
                            {.vocab = 256000,
                             .width = 3072,
                             .ffn = 24576,
                             .layers = 28,
                             .heads = 16,
                             .kv_heads = 16,
                             .head_dim = 256,
                             .context = 8192,
                             .tied = true});
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  // Old files have hidden_act "gelu" beside the hidden_activation that was meant.
  const std::string_view key = config.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const DenseSpec ffn = gated_ffn(config, sizes, key, "gelu_pytorch_tanh");
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, ffn, *spec.final_norm));
}

// What generations 2 and 3 share: norms around both halves, capped logits, a scale of their own, windows on some
// layers.
LayerSpec sandwich(Config& config, ModelSpec& spec, const Sizes& sizes, double logit_softcap) {
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.scale = static_cast<float>(1 / std::sqrt(config.positive("query_pre_attn_scalar", 256)));
  spec.logit_softcap = static_cast<float>(config.number_or_none("final_logit_softcapping", logit_softcap));
  LayerSpec layer =
      pre_norm_layer(gqa, gated_ffn(config, sizes, "hidden_activation", "gelu_pytorch_tanh"), *spec.final_norm);
  layer.mixer_post_norm = layer.ffn_post_norm = spec.final_norm;
  return layer;
}

void describe_gemma2(Config& config, ModelSpec& spec) {
  if (config.has("use_bidirectional_attention") && config.flag("use_bidirectional_attention", false)) {
    config.refuse("use_bidirectional_attention", "attention must be causal");
  }
  const Sizes sizes = begin(config, spec,
                            {.vocab = 256000,
                             .width = 2304,
                             .ffn = 9216,
                             .layers = 26,
                             .heads = 8,
                             .kv_heads = 4,
                             .head_dim = 256,
                             .context = 8192,
                             .tied = true});
  LayerSpec layer = sandwich(config, spec, sizes, 30);
  auto& gqa = std::get<GqaSpec>(layer.mixer);
  gqa.softcap = static_cast<float>(config.number_or_none("attn_logit_softcapping", 50));
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  const int32_t window = config.count_or_none("sliding_window", 4096);
  for (bool sliding : sliding_layers(config, sizes.layers, [](int32_t i) { return i % 2 == 0; })) {
    gqa.window = sliding ? window : 0;
    spec.layers.push_back(layer);
  }
}

void describe_gemma3(Config& config, ModelSpec& spec) {
  const Sizes sizes = begin(config, spec,
                            {.vocab = 262208,
                             .width = 2304,
                             .ffn = 9216,
                             .layers = 26,
                             .heads = 8,
                             .kv_heads = 4,
                             .head_dim = 256,
                             .context = 131072,
                             .tied = true});
  LayerSpec layer = sandwich(config, spec, sizes, 0);
  auto& gqa = std::get<GqaSpec>(layer.mixer);
  gqa.qk_norm = spec.final_norm;
  const int32_t window = config.count_or_none("sliding_window", 4096);
  const int32_t period = config.count("sliding_window_pattern", config.count("_sliding_window_pattern", 6));
  const int32_t global =
      add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 1e6, .layer_type = "full_attention"});
  const int32_t local = add_rope(config, spec,
                                 {.head_dim = sizes.head_dim,
                                  .layer_type = "sliding_attention",
                                  .theta_key = "rope_local_base_freq",
                                  .scaled = false});
  // To both sides, half the window each (EmbeddingGemma).
  const bool both = config.flag("use_bidirectional_attention", false);
  gqa.causal = !both;
  for (bool sliding : sliding_layers(config, sizes.layers, [&](int32_t i) { return (i + 1) % period != 0; })) {
    gqa.window = !sliding ? 0 : both ? window / 2 + 1 : window;
    gqa.ahead = sliding && both ? std::max(1, window / 2) : 0;
    gqa.rope = sliding ? local : global;
    spec.layers.push_back(layer);
  }
}

constexpr TensorName kSandwichNames[] = {
    {"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"},
    {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
};

}  // namespace

extern const Architecture kGemma = {
    .name = "gemma", .describe = describe_gemma, .norms_plus_one = true, .gguf = {.name = "gemma"}};
extern const Architecture kGemma2 = {.name = "gemma2",
                                     .describe = describe_gemma2,
                                     .names = kSandwichNames,
                                     .norms_plus_one = true,
                                     .gguf = {.name = "gemma2"}};
extern const Architecture kGemma3 = {.name = "gemma3_text",
                                     .describe = describe_gemma3,
                                     .names = kSandwichNames,
                                     .norms_plus_one = true,
                                     .gguf = {.name = "gemma3"}};
// Only GGUF has a name of its own for it.
extern const Architecture kGemmaEmbedding = {.name = "gemma_embedding",
                                             .describe = describe_gemma3,
                                             .names = kSandwichNames,
                                             .norms_plus_one = true,
                                             .gguf = {.name = "gemma-embedding"}};

}  // namespace millrace
