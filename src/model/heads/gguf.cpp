#include "model/heads/gguf.h"

#include <algorithm>
#include <span>
#include <utility>

namespace millrace {
namespace {

using Name = std::pair<std::string_view, std::string_view>;

constexpr Name kEagleNames[] = {
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

// Of the layer: what follows its number.
constexpr Name kLayerNames[] = {
    {"eh_proj.weight", "nextn.eh_proj.weight"},
    {"enorm.weight", "nextn.enorm.weight"},
    {"hnorm.weight", "nextn.hnorm.weight"},
    {"embed_tokens.weight", "nextn.embed_tokens.weight"},
    {"shared_head.norm.weight", "nextn.shared_head_norm.weight"},
    {"shared_head.head.weight", "nextn.shared_head_head.weight"},
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
};

std::string in(std::span<const Name> names, std::string_view name) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const Name& n) { return n.first == name; });
  return std::string(found == names.end() ? name : found->second);
}

std::string architecture_of(const Metadata& metadata) {
  const auto architecture = metadata.get_string("general.architecture", "");
  return architecture.ok() ? *architecture : std::string();
}

}  // namespace

GgufHead gguf_head(const Checkpoint& checkpoint) {
  if (checkpoint.kind() != Checkpoint::Kind::gguf) return GgufHead::none;
  if (architecture_of(checkpoint.metadata()) == "eagle3") return GgufHead::eagle;
  const auto tensors = checkpoint.tensors();
  const bool ahead = std::any_of(tensors.begin(), tensors.end(), [](const StoredTensor& tensor) {
    return tensor.name.ends_with(".nextn.eh_proj.weight");
  });
  return ahead ? GgufHead::mtp : GgufHead::none;
}

std::string gguf_head_name(GgufHead kind, std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (kind == GgufHead::eagle) return in(kEagleNames, name);
  if (kind == GgufHead::none || !name.starts_with(kLayers)) return std::string(name);
  const size_t dot = name.find('.', kLayers.size());
  if (dot == std::string_view::npos) return std::string(name);
  return fmt::format("blk.{}.{}", name.substr(kLayers.size(), dot - kLayers.size()),
                     in(kLayerNames, name.substr(dot + 1)));
}

bool gguf_turns_neighbours(GgufHead kind, const Metadata& metadata) {
  return kind == GgufHead::eagle || (kind == GgufHead::mtp && architecture_of(metadata) == "llama");
}

Result<Json> gguf_head_config(GgufHead kind, const Metadata& metadata) {
  JsonObject config;
  const std::string architecture = kind == GgufHead::eagle ? "eagle3" : architecture_of(metadata);
  auto key = [&](std::string_view name) { return fmt::format("{}.{}", architecture, name); };
  for (const auto& [name, from] :
       {std::pair("num_attention_heads", "attention.head_count"),
        std::pair("num_key_value_heads", "attention.head_count_kv"), std::pair("head_dim", "attention.key_length"),
        std::pair("intermediate_size", "feed_forward_length")}) {
    if (metadata.find(key(from)) == nullptr) continue;
    TRY(const int64_t value, metadata.get_int(key(from), 0));
    config[name] = value;
  }
  TRY(config["rms_norm_eps"], metadata.get_number(key("attention.layer_norm_rms_epsilon"), 1e-5));
  TRY(config["rope_theta"], metadata.get_number(key("rope.freq_base"), 10000));
  TRY(const std::string scaling, metadata.get_string(key("rope.scaling.type"), "none"));
  if (scaling != "none") config["rope_scaling"] = scaling;
  if (kind != GgufHead::eagle) return Json(std::move(config));
  for (const auto& [name, from] : {std::pair("norm_before_residual", "eagle3.norm_before_residual"),
                                   std::pair("norm_before_fc", "eagle3.norm_before_fc")}) {
    TRY(const bool value, metadata.get_bool(from, false));
    config[name] = value;
  }
  const MetaArray* layers = metadata.find_array("eagle3.target_layers");
  if (layers == nullptr) layers = metadata.find_array("eagle3.extract_layers");  // its earlier name
  if (layers != nullptr) {
    TRY(const std::vector<int64_t> listed, layers->integers());
    config["eagle_aux_hidden_state_layer_ids"] = JsonArray(listed.begin(), listed.end());
  }
  return Json(std::move(config));
}

}  // namespace millrace
