#include <algorithm>
#include <cmath>

#include "model/archs/list.h"
#include "model/archs/states.h"

namespace millrace {
namespace {

// The width of the feed-forward part: two thirds of what is said, times a factor, in whole pieces.
int32_t ffn_width(Config& config, int32_t said) {
  if (!config.flag("block_auto_adjust_ff_dim", true)) return said;
  double width = std::floor(2.0 * said / 3);
  if (config.has("block_ffn_dim_multiplier"))
    width = std::floor(config.positive("block_ffn_dim_multiplier", 1) * width);
  const int32_t piece = config.count("block_multiple_of", 256);
  return static_cast<int32_t>(std::min(std::ceil(width / piece) * piece, 1e9));
}

// Short convolutions, and attention in some layers; the norm named after the embedding is the last one.
void describe_lfm2(Config& config, ModelSpec& spec) {
  if (config.has("block_ff_dim") && !config.has("intermediate_size"))
    config.set("intermediate_size", config.count("block_ff_dim", 1));
  Sizes sizes = read_sizes(config, spec,
                           {.vocab = 65536,
                            .width = 2560,
                            .ffn = 12288,
                            .layers = 32,
                            .heads = 32,
                            .kv_heads = 8,
                            .context = 128000,
                            .tied = true});
  sizes.ffn = ffn_width(config, sizes.ffn);
  const NormSpec norm = rms_norm(config, "norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qk_norm = norm;
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 1e6});
  const ShortConvSpec conv = {
      .width = sizes.width, .conv = config.count("conv_L_cache", 3), .bias = config.flag("conv_bias", false)};
  const DenseSpec ffn = {.width = sizes.ffn};
  const std::vector<int64_t> attending = config.integers("full_attn_idxs", 0);
  const std::vector<std::string> types =
      layer_types(config, "layer_types", sizes.layers, {"conv", "full_attention"}, [&](int32_t i) {
        const bool listed = std::find(attending.begin(), attending.end(), i) != attending.end();
        return attending.empty() || listed ? "full_attention" : "conv";
      });
  for (const std::string& type : types)
    spec.layers.push_back(type == "conv" ? mixed_layer(conv, ffn, norm) : mixed_layer(gqa, ffn, norm));
  spec.final_norm = norm;
}

constexpr TensorName kLfm2Names[] = {
    {"output_norm", "model.embedding_norm"},
    {"blk.{}.attn_norm", "model.layers.{}.operator_norm"},
    {"blk.{}.ffn_norm", "model.layers.{}.ffn_norm"},
    {"blk.{}.shortconv.in_proj", "model.layers.{}.conv.in_proj"},
    {"blk.{}.shortconv.conv", "model.layers.{}.conv.conv"},
    {"blk.{}.shortconv.conv_b", "model.layers.{}.conv.conv.bias", Take::whole, true},
    {"blk.{}.shortconv.out_proj", "model.layers.{}.conv.out_proj"},
    {"blk.{}.attn_output", "model.layers.{}.self_attn.out_proj"},
    {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm"},
    {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm"},
    {"blk.{}.ffn_gate", "model.layers.{}.feed_forward.w1"},
    {"blk.{}.ffn_up", "model.layers.{}.feed_forward.w3"},
    {"blk.{}.ffn_down", "model.layers.{}.feed_forward.w2"},
};

constexpr TensorName kLfm2GgufNames[] = {
    {"output_norm", "token_embd_norm"},
    {"blk.{}.shortconv.conv_b", "blk.{}.shortconv.conv.bias", Take::whole, true},
};

}  // namespace

extern const Architecture kLfm2 = {
    .name = "lfm2", .describe = describe_lfm2, .names = kLfm2Names, .gguf = {.name = "lfm2", .names = kLfm2GgufNames}};

}  // namespace millrace
