#include <cmath>

#include "model/archs/list.h"
#include "model/archs/states.h"
#include "tensor/half.h"

namespace millrace {
namespace {

// Gated recurrences, and attention over a window in every third layer; the feed-forward part is half as wide as said.
void describe_recurrent_gemma(Config& config, ModelSpec& spec) {
  Sizes sizes = read_sizes(config, spec,
                           {.vocab = 256000,
                            .width = 2560,
                            .ffn = 3 * 2560 * 2,
                            .layers = 26,
                            .heads = 10,
                            .kv_heads = 1,
                            .context = 8192,
                            .tied = true});
  sizes.ffn /= 2;
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  const std::string_view key = config.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  GqaSpec gqa = attention(sizes);
  gqa.window = config.count("attention_window_size", 2048);
  gqa.qkv_bias = config.flag("attention_bias", false);
  gqa.out_bias = true;
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .partial = 0.5, .partial_allowed = true});
  DenseSpec ffn = gated_ffn(config, sizes, key, "gelu_pytorch_tanh");
  ffn.up_bias = ffn.down_bias = true;
  const LruSpec lru = {.inner = config.is_null("lru_width") ? sizes.width : config.count("lru_width", sizes.width),
                       .heads = sizes.heads,
                       .conv = config.count("conv1d_width", 4),
                       .activation = ffn.activation};
  const std::vector<std::string> types = config.texts("block_types", 0);
  for (int32_t i = 0; i < sizes.layers; ++i) {
    const std::string type =
        types.empty() ? i % 3 == 2 ? "attention" : "recurrent" : types[static_cast<size_t>(i) % types.size()];
    if (type != "attention" && type != "recurrent") config.refuse("block_types", "expected attention and recurrent");
    spec.layers.push_back(type == "attention" ? mixed_layer(gqa, ffn, norm) : mixed_layer(lru, ffn, norm));
  }
  spec.final_norm = norm;
  // Rounded to bfloat16, as it was in training.
  spec.embed_scale = bf16_to_f32(f32_to_bf16(static_cast<float>(std::sqrt(static_cast<double>(sizes.width)))));
  spec.logit_softcap = static_cast<float>(config.number_or_none("logits_soft_cap", 30));
}

constexpr TensorName kRecurrentGemmaNames[] = {
    {"output_norm", "model.final_norm"},
    {"blk.{}.attn_norm", "model.layers.{}.temporal_pre_norm"},
    {"blk.{}.ffn_norm", "model.layers.{}.channel_pre_norm"},
    {"blk.{}.attn_q", "model.layers.{}.temporal_block.q_proj"},
    {"blk.{}.attn_k", "model.layers.{}.temporal_block.k_proj"},
    {"blk.{}.attn_v", "model.layers.{}.temporal_block.v_proj"},
    {"blk.{}.attn_output", "model.layers.{}.temporal_block.o_proj"},
    {"blk.{}.lru_gate", "model.layers.{}.temporal_block.linear_y"},
    {"blk.{}.lru_x", "model.layers.{}.temporal_block.linear_x"},
    {"blk.{}.lru_out", "model.layers.{}.temporal_block.linear_out"},
    {"blk.{}.ssm_conv1d", "model.layers.{}.temporal_block.conv_1d"},
    {"blk.{}.ssm_conv1d_b", "model.layers.{}.temporal_block.conv_1d.bias", Take::whole, true},
    {"blk.{}.lru_input_gate", "model.layers.{}.temporal_block.rg_lru.input_gate_weight", Take::whole, true, true},
    {"blk.{}.lru_input_gate_b", "model.layers.{}.temporal_block.rg_lru.input_gate_bias", Take::whole, true},
    {"blk.{}.lru_keep_gate", "model.layers.{}.temporal_block.rg_lru.recurrent_gate_weight", Take::whole, true, true},
    {"blk.{}.lru_keep_gate_b", "model.layers.{}.temporal_block.rg_lru.recurrent_gate_bias", Take::whole, true},
    {"blk.{}.lru_rate", "model.layers.{}.temporal_block.rg_lru.recurrent_param", Take::whole, true, false,
     Change::lru_rate},
    {"blk.{}.ffn_gate", "model.layers.{}.mlp_block.gate_proj"},
    {"blk.{}.ffn_up", "model.layers.{}.mlp_block.up_proj"},
    {"blk.{}.ffn_down", "model.layers.{}.mlp_block.down_proj"},
};

}  // namespace

extern const Architecture kRecurrentGemma = {.name = "recurrent_gemma",
                                             .describe = describe_recurrent_gemma,
                                             .names = kRecurrentGemmaNames,
                                             .norms_plus_one = true};

}  // namespace millrace
