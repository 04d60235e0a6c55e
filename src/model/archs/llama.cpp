#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

void describe_llama(Config& config, ModelSpec& spec) {
  const Sizes sizes =
      read_sizes(config, spec, {.vocab = 32000, .width = 4096, .ffn = 11008, .layers = 32, .heads = 32});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  GqaSpec gqa = attention(sizes);
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim});
  DenseSpec ffn = gated_ffn(config, sizes);
  ffn.up_bias = ffn.down_bias = config.flag("mlp_bias", false);
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, ffn, norm));
  spec.final_norm = norm;
}

constexpr TensorName kLlamaNames[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"cls.0", "score"},
    {"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    {"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
    {"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"},
    {"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
    {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"},
    {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"},
    {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
    {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
    {"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
    {"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
    {"blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"},
    {"blk.{}.exp_probs_b", "model.layers.{}.mlp.gate.e_score_correction_bias", Take::whole, true},
    {"blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj", Take::per_expert},
    {"blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj", Take::per_expert},
    {"blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj", Take::per_expert},
    {"blk.{}.ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate"},
    {"blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_experts.gate_proj"},
    {"blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"},
    {"blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_experts.up_proj"},
    {"blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"},
    {"blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_experts.down_proj"},
    {"blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"},
    {"blk.{}.attn_sinks", "model.layers.{}.self_attn.sinks", Take::whole, true},
    {"blk.{}.attn_q_a", "model.layers.{}.self_attn.q_a_proj"},
    {"blk.{}.attn_q_a_norm", "model.layers.{}.self_attn.q_a_layernorm"},
    {"blk.{}.attn_q_b", "model.layers.{}.self_attn.q_b_proj"},
    {"blk.{}.attn_kv_a_mqa", "model.layers.{}.self_attn.kv_a_proj_with_mqa"},
    {"blk.{}.attn_kv_a_norm", "model.layers.{}.self_attn.kv_a_layernorm"},
    {"blk.{}.attn_k_b", "model.layers.{}.self_attn.kv_b_proj", Take::latent_k},
    {"blk.{}.attn_v_b", "model.layers.{}.self_attn.kv_b_proj", Take::latent_v},
};

}  // namespace

std::span<const TensorName> llama_names() { return kLlamaNames; }

extern const Architecture kLlama = {
    .name = "llama", .describe = describe_llama, .gguf = {.name = "llama", .permuted = true}};

}  // namespace millrace
