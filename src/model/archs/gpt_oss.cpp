#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Every other layer sees a window; heads have sinks; experts have biases and a gate that is clamped.
void describe_gpt_oss(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(config, spec,
                                 {.vocab = 201088,
                                  .width = 2880,
                                  .ffn = 2880,
                                  .layers = 36,
                                  .heads = 64,
                                  .kv_heads = 8,
                                  .head_dim = 64,
                                  .context = 131072});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.sinks = true;
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", true);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 150000});
  MoeSpec moe = mixture(config, {.experts = 128, .chosen = 4, .width = sizes.ffn}, "intermediate_size");
  moe.router = {.score = RouterScore::softmax_chosen, .bias = true};
  moe.bias = true;
  moe.limit = {.limit = static_cast<float>(config.positive("swiglu_limit", 7)), .slope = 1.702f, .shift = 1};
  const int32_t window = config.count_or_none("sliding_window", 128);
  for (bool sliding : sliding_layers(config, sizes.layers, [](int32_t i) { return i % 2 == 0; })) {
    gqa.window = sliding ? window : 0;
    spec.layers.push_back(pre_norm_layer(gqa, moe, norm));
  }
  spec.final_norm = norm;
}

constexpr TensorName kGptOssNames[] = {
    {"blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router"},
    {"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.gate_up_proj", Take::even, true, true},
    {"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.gate_up_proj", Take::odd, true, true},
    {"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.down_proj", Take::whole, true, true},
};

constexpr TensorName kGptOssGgufNames[] = {{"blk.{}.ffn_norm", "blk.{}.post_attention_norm"}};

}  // namespace

extern const Architecture kGptOss = {.name = "gpt_oss",
                                     .describe = describe_gpt_oss,
                                     .names = kGptOssNames,
                                     .gguf = {.name = "gpt-oss", .names = kGptOssGgufNames}};

}  // namespace millrace
