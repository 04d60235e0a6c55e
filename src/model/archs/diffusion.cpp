// Models that write by filling masks, of which every token sees all others: LLaDA and Dream. What a pass fills and how
// is the session's affair; here they are encoders with a head.
#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// Llama's layers under names of its own.
void describe_llada(Config& config, ModelSpec& spec) {
  for (const auto& [own, usual] :
       {std::pair("d_model", "hidden_size"), std::pair("n_layers", "num_hidden_layers"),
        std::pair("n_heads", "num_attention_heads"), std::pair("n_kv_heads", "num_key_value_heads"),
        std::pair("mlp_hidden_size", "intermediate_size"), std::pair("max_sequence_length", "max_position_embeddings"),
        std::pair("weight_tying", "tie_word_embeddings"), std::pair("embedding_size", "vocab_size")}) {
    if (config.has(own)) config.set(usual, config.values().at(own));
  }
  if (const std::string kind = config.text("block_type", "llama"); kind != "llama")
    config.refuse("block_type", "only layers as Llama has them are built");
  const Sizes sizes = read_sizes(
      config, spec, {.vocab = 126464, .width = 4096, .ffn = 12288, .layers = 32, .heads = 32, .context = 4096});
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-5);
  GqaSpec gqa = attention(sizes);
  gqa.causal = false;
  gqa.qkv_bias = config.flag("include_qkv_bias", false);
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 500000});
  spec.layers.assign(static_cast<size_t>(sizes.layers),
                     pre_norm_layer(gqa, gated_ffn(config, sizes, "activation_type", "silu"), norm));
  spec.final_norm = norm;
}

// Qwen 2 with full attention.
void describe_dream(Config& config, ModelSpec& spec) {
  const Sizes sizes = read_sizes(
      config, spec,
      {.vocab = 152064, .width = 3584, .ffn = 18944, .layers = 28, .heads = 28, .kv_heads = 4, .context = 131072});
  if (config.flag("use_sliding_window", false)) config.refuse("use_sliding_window", "windows are not built here");
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  GqaSpec gqa = attention(sizes);
  gqa.causal = false;
  gqa.qkv_bias = true;
  gqa.rope = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 1000000});
  spec.layers.assign(static_cast<size_t>(sizes.layers), pre_norm_layer(gqa, gated_ffn(config, sizes), norm));
  spec.final_norm = norm;
}

constexpr TensorName kLladaNames[] = {
    {"token_embd", "model.transformer.wte"},
    {"output_norm", "model.transformer.ln_f"},
    {"output", "model.transformer.ff_out"},
    {"blk.{}.attn_norm", "model.transformer.blocks.{}.attn_norm"},
    {"blk.{}.attn_q", "model.transformer.blocks.{}.q_proj"},
    {"blk.{}.attn_k", "model.transformer.blocks.{}.k_proj"},
    {"blk.{}.attn_v", "model.transformer.blocks.{}.v_proj"},
    {"blk.{}.attn_output", "model.transformer.blocks.{}.attn_out"},
    {"blk.{}.ffn_norm", "model.transformer.blocks.{}.ff_norm"},
    {"blk.{}.ffn_gate", "model.transformer.blocks.{}.ff_proj"},
    {"blk.{}.ffn_up", "model.transformer.blocks.{}.up_proj"},
    {"blk.{}.ffn_down", "model.transformer.blocks.{}.ff_out"},
};

}  // namespace

extern const Architecture kLlada = {.name = "llada", .describe = describe_llada, .names = kLladaNames};
extern const Architecture kDream = {.name = "Dream", .describe = describe_dream};

}  // namespace millrace
