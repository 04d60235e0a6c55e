#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Llama whose heads of q and k are normalised after they have turned.
void describe_hunyuan(Config& config, ModelSpec& spec) {
  const Sizes sizes =
      read_sizes(config, spec, {.vocab = 290943, .width = 4096, .ffn = 11008, .layers = 32, .heads = 32});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.qk_norm = norm;
  gqa.qk_norm_after_rope = true;
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, gated_ffn(config, sizes), norm));
  spec.final_norm = norm;
}

constexpr TensorName kHunyuanNames[] = {
    {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.query_layernorm"},
    {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.key_layernorm"},
};

}  // namespace

extern const Architecture kHunyuanDense = {.name = "hunyuan_v1_dense",
                                           .describe = describe_hunyuan,
                                           .names = kHunyuanNames,
                                           .gguf = {.name = "hunyuan-dense"}};

}  // namespace millrace
