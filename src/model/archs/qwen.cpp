#include <algorithm>

#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// `ffn_of` gives the feed-forward part of each layer.
void describe(Config& config, ModelSpec& spec, const Sizes& sizes, GqaSpec gqa,
              const std::function<FfnSpec(int32_t layer)>& ffn_of) {
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  const int32_t window = config.flag("use_sliding_window", false) ? config.count_or_none("sliding_window", 4096) : 0;
  const int32_t first = config.count_or_none("max_window_layers", 28);
  for (bool sliding : sliding_layers(config, sizes.layers, [&](int32_t i) { return window > 0 && i >= first; })) {
    if (sliding && window == 0) config.refuse("use_sliding_window", "layer_types has sliding layers");
    gqa.window = sliding ? window : 0;
    spec.layers.push_back(pre_norm_layer(gqa, ffn_of(static_cast<int32_t>(spec.layers.size())), norm));
  }
  spec.final_norm = norm;
}

void describe(Config& config, ModelSpec& spec, const Sizes& sizes, const GqaSpec& gqa) {
  const DenseSpec ffn = gated_ffn(config, sizes);
  describe(config, spec, sizes, gqa, [&](int32_t) { return ffn; });
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

// Which layers have experts: every n-th, but for those listed as dense.
void describe_mixture(Config& config, ModelSpec& spec, const Sizes& sizes, const GqaSpec& gqa, MoeSpec moe) {
  moe.router.normalise = config.flag("norm_topk_prob", false);
  const int32_t every = config.count("decoder_sparse_step", 1);
  const std::vector<int64_t> dense_layers = config.integers("mlp_only_layers", 0);
  const DenseSpec dense = gated_ffn(config, sizes);
  describe(config, spec, sizes, gqa, [&](int32_t layer) -> FfnSpec {
    const bool listed = std::find(dense_layers.begin(), dense_layers.end(), layer) != dense_layers.end();
    if (listed || (layer + 1) % every != 0) return dense;
    return moe;
  });
}

// Experts, and a shared one times a sigmoid.
void describe_qwen2_moe(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec,
      {.vocab = 151936, .width = 2048, .ffn = 5632, .layers = 24, .heads = 16, .kv_heads = 16, .context = 32768});
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = config.flag("qkv_bias", true);
  MoeSpec moe = mixture(config, {.experts = 60, .chosen = 4, .width = 1408});
  moe.shared_width = config.count_or_none("shared_expert_intermediate_size", 5632);
  moe.shared_gate = true;
  describe_mixture(config, spec, sizes, gqa, moe);
}

void describe_qwen3_moe(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec,
      {.vocab = 151936, .width = 2048, .ffn = 6144, .layers = 24, .heads = 32, .kv_heads = 4, .context = 32768});
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.qk_norm = rms_norm(config, "rms_norm_eps", 1e-6);
  describe_mixture(config, spec, sizes, gqa, mixture(config, {.experts = 128, .chosen = 8, .width = 768}));
}

}  // namespace

extern const Architecture kQwen2 = {.name = "qwen2", .describe = describe_qwen2, .gguf = {.name = "qwen2"}};
extern const Architecture kQwen3 = {.name = "qwen3", .describe = describe_qwen3, .gguf = {.name = "qwen3"}};
extern const Architecture kQwen2Moe = {
    .name = "qwen2_moe", .describe = describe_qwen2_moe, .gguf = {.name = "qwen2moe"}};
extern const Architecture kQwen3Moe = {
    .name = "qwen3_moe", .describe = describe_qwen3_moe, .gguf = {.name = "qwen3moe"}};

}  // namespace millrace
