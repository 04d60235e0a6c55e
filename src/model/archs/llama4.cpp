#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

std::vector<bool> listed(Config& config, std::string_view key, int32_t layers, int32_t every) {
  std::vector<bool> out(static_cast<size_t>(layers));
  if (!config.has(key)) {
    for (int32_t i = every - 1; i < layers; i += every) out[static_cast<size_t>(i)] = true;
    return out;
  }
  for (int64_t layer : config.integers(key, 0)) {
    if (layer >= 0 && layer < layers) out[static_cast<size_t>(layer)] = true;
  }
  return out;
}

// Layers that turn see the chunk of positions they are in, and normalise q and k after turning; every fourth does not
// turn, sees everything, and scales its queries by position. A token's weight multiplies what its expert reads.
void describe_llama4(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 202048,
                                  .width = 5120,
                                  .ffn = 8192,
                                  .layers = 48,
                                  .heads = 40,
                                  .kv_heads = 8,
                                  .head_dim = 128,
                                  .context = 131072});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  MoeSpec moe = mixture(config, {.experts = 16, .chosen = 1, .width = sizes.ffn}, "intermediate_size");
  moe.router = {.score = RouterScore::sigmoid, .on_input = true};
  moe.shared_width = moe.width;
  DenseSpec dense = gated_ffn(config, sizes);
  dense.width = config.count("intermediate_size_mlp", 16384);
  const std::vector<bool> mixed =
      listed(config, "moe_layers", sizes.layers, config.count("interleave_moe_layer_step", 1));
  const std::vector<int64_t> turns = config.integers("no_rope_layers", 0);  // 1: the layer turns
  if (!turns.empty() && turns.size() != static_cast<size_t>(sizes.layers))
    return config.refuse("no_rope_layers", "expected a number for every layer");
  const int32_t rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 500000, .neighbours = true});
  const bool normed = config.flag("use_qk_norm", true), tempered = config.flag("attn_temperature_tuning", true);
  for (int32_t i = 0; i < sizes.layers; ++i) {
    const auto index = static_cast<size_t>(i);
    GqaSpec gqa = attention(sizes);
    gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
    if (turns.empty() ? (i + 1) % 4 != 0 : turns[index] != 0) {
      gqa.rope = rope;
      gqa.grid = config.count_or_none("attention_chunk_size", 8192);
      if (normed) gqa.qk_norm = NormSpec{.epsilon = norm.epsilon, .weight = false};
      gqa.qk_norm_after_rope = true;
    } else if (tempered) {
      gqa.q_scale = {.factor = static_cast<float>(config.number("attn_scale", 0.1)),
                     .every = config.count("floor_scale", 8192),
                     .offset = 1};
    }
    spec.layers.push_back(pre_norm_layer(gqa, mixed[index] ? FfnSpec(moe) : FfnSpec(dense), norm));
  }
  spec.final_norm = norm;
}

constexpr TensorName kLlama4Names[] = {
    {"blk.{}.ffn_gate", "model.layers.{}.feed_forward.gate_proj"},
    {"blk.{}.ffn_up", "model.layers.{}.feed_forward.up_proj"},
    {"blk.{}.ffn_down", "model.layers.{}.feed_forward.down_proj"},
    {"blk.{}.ffn_gate_inp", "model.layers.{}.feed_forward.router"},
    {"blk.{}.ffn_gate_exps", "model.layers.{}.feed_forward.experts.gate_up_proj", Take::first_half, true, true},
    {"blk.{}.ffn_up_exps", "model.layers.{}.feed_forward.experts.gate_up_proj", Take::second_half, true, true},
    {"blk.{}.ffn_down_exps", "model.layers.{}.feed_forward.experts.down_proj", Take::whole, true, true},
    {"blk.{}.ffn_gate_shexp", "model.layers.{}.feed_forward.shared_expert.gate_proj"},
    {"blk.{}.ffn_up_shexp", "model.layers.{}.feed_forward.shared_expert.up_proj"},
    {"blk.{}.ffn_down_shexp", "model.layers.{}.feed_forward.shared_expert.down_proj"},
};

}  // namespace

extern const Architecture kLlama4 = {
    .name = "llama4_text", .describe = describe_llama4, .names = kLlama4Names, .gguf = {.name = "llama4"}};

}  // namespace millrace
