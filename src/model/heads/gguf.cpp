#include "model/heads/gguf.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"midlayer.input_layernorm.weight", "blk.0.attn_norm.weight"},
    {"midlayer.hidden_norm.weight", "blk.0.attn_norm_2.weight"},
    {"midlayer.self_attn.q_proj.weight", "blk.0.attn_q.weight"},
    {"midlayer.self_attn.k_proj.weight", "blk.0.attn_k.weight"},
    {"midlayer.self_attn.v_proj.weight", "blk.0.attn_v.weight"},
    {"midlayer.self_attn.o_proj.weight", "blk.0.attn_output.weight"},
    {"midlayer.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"},
    {"midlayer.mlp.gate_proj.weight", "blk.0.ffn_gate.weight"},
    {"midlayer.mlp.up_proj.weight", "blk.0.ffn_up.weight"},
    {"midlayer.mlp.down_proj.weight", "blk.0.ffn_down.weight"},
    {"norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"embed_tokens.weight", "token_embd.weight"},
};

}  // namespace

bool is_gguf_eagle(const Checkpoint& checkpoint) {
  if (checkpoint.kind() != Checkpoint::Kind::gguf) return false;
  const auto architecture = checkpoint.metadata().get_string("general.architecture", "");
  return architecture.ok() && *architecture == "eagle3";
}

std::string gguf_head_name(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& n) { return n.first == name; });
  return std::string(found == std::end(kNames) ? name : found->second);
}

Result<Json> gguf_head_config(const Metadata& metadata) {
  JsonObject config;
  for (const auto& [key, from] : {std::pair("num_attention_heads", "eagle3.attention.head_count"),
                                  std::pair("num_key_value_heads", "eagle3.attention.head_count_kv"),
                                  std::pair("head_dim", "eagle3.attention.key_length"),
                                  std::pair("intermediate_size", "eagle3.feed_forward_length")}) {
    if (metadata.find(from) == nullptr) continue;
    TRY(const int64_t value, metadata.get_int(from, 0));
    config[key] = value;
  }
  TRY(config["rms_norm_eps"], metadata.get_number("eagle3.attention.layer_norm_rms_epsilon", 1e-5));
  TRY(config["rope_theta"], metadata.get_number("eagle3.rope.freq_base", 10000));
  for (const auto& [key, from] : {std::pair("norm_before_residual", "eagle3.norm_before_residual"),
                                  std::pair("norm_before_fc", "eagle3.norm_before_fc")}) {
    TRY(const bool value, metadata.get_bool(from, false));
    config[key] = value;
  }
  TRY(const std::string scaling, metadata.get_string("eagle3.rope.scaling.type", "none"));
  if (scaling != "none") config["rope_scaling"] = scaling;
  const MetaArray* layers = metadata.find_array("eagle3.target_layers");
  if (layers == nullptr) layers = metadata.find_array("eagle3.extract_layers");  // its earlier name
  if (layers != nullptr) {
    TRY(const std::vector<int64_t> listed, layers->integers());
    config["eagle_aux_hidden_state_layer_ids"] = JsonArray(listed.begin(), listed.end());
  }
  return Json(std::move(config));
}

}  // namespace millrace
