// Gemma 3n and 4: layers that read the keys of earlier ones, inputs of each layer's own, and (3n) several streams.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "model/archs/common.h"
#include "model/archs/list.h"

namespace millrace {
namespace {

// What both generations have in common: sandwich norms whose weights are plain, scores that are not scaled, norms of
// queries, keys and values.
struct Family {
  Sizes sizes;
  LayerSpec layer;
  int32_t window = 0, global = -1, local = -1, shared = 0;
  std::vector<bool> sliding;

  int32_t own() const { return sizes.layers - shared; }  // layers with keys of their own
};

// One width for all layers, or a list.
std::vector<int64_t> widths_of(Config& config) {
  const Json* found = find(config.values(), "intermediate_size");
  if (found == nullptr || !found->is_array()) return {};
  std::vector<int64_t> widths = config.integers("intermediate_size", 0);
  for (int64_t& width : widths) width = std::clamp<int64_t>(width, 0, INT32_MAX);
  if (!widths.empty()) config.set("intermediate_size", widths.front());
  return widths;
}

Family begin(Config& config, ModelSpec& spec, const Sizes& usual, int32_t period) {
  Family family = {.sizes = read_sizes(config, spec, usual), .layer = {}, .sliding = {}};
  const Sizes& sizes = family.sizes;
  const NormSpec norm = rms_norm(config, "rms_norm_eps", 1e-6);
  NormSpec plain = norm;
  plain.weight = false;
  GqaSpec gqa = attention(sizes);
  gqa.scale = 1;
  gqa.qkv_bias = gqa.out_bias = config.flag("attention_bias", false);
  gqa.qk_norm = norm;
  gqa.v_norm = plain;
  family.layer = pre_norm_layer(gqa, gated_ffn(config, sizes, "hidden_activation", "gelu_pytorch_tanh"), norm);
  family.layer.mixer_post_norm = family.layer.ffn_post_norm = norm;
  family.window = config.count_or_none("sliding_window", 512);
  family.shared = config.count_or_none("num_kv_shared_layers", 0);
  family.sliding = sliding_layers(config, sizes.layers, [&](int32_t i) { return (i + 1) % period != 0; });
  if (config.has("kv_from")) config.refuse("kv_from", "expected 'num_kv_shared_layers' instead");
  if (family.shared >= sizes.layers)
    config.refuse("num_kv_shared_layers", fmt::format("the first of {} layers must have keys", sizes.layers));
  spec.embed_scale = static_cast<float>(std::sqrt(static_cast<double>(sizes.width)));
  spec.final_norm = norm;
  if (const int32_t width = config.count_or_none("hidden_size_per_layer_input", 256); width > 0) {
    spec.layer_input = {.width = width,
                        .vocab = config.count("vocab_size_per_layer_input", sizes.vocab),
                        .activation = activation(config, "hidden_activation", "gelu_pytorch_tanh"),
                        .norm = norm};
  }
  return family;
}

// The last earlier layer of the same type that has keys of its own; -1: this one has.
int32_t source_of(Config& config, const Family& family, int32_t layer) {
  if (family.shared <= 0 || layer < family.own()) return -1;
  for (int32_t i = family.own() - 1; i >= 0; --i) {
    if (family.sliding[static_cast<size_t>(i)] == family.sliding[static_cast<size_t>(layer)]) return i;
  }
  config.refuse("num_kv_shared_layers", fmt::format("no layer before layer {} has keys that it could read", layer));
  return -1;
}

// What a configuration says of one layer only (`per_layer_config`), or what it says of all.
int32_t of_layer(Config& config, int32_t layer, std::string_view key, int32_t usual) {
  const Json* all = find(config.values(), "per_layer_config");
  if (all == nullptr || !all->is_object()) return usual;
  const Json* own = find(*all, std::to_string(layer));
  const Json* found = own != nullptr && own->is_object() ? find(*own, key) : nullptr;
  if (found == nullptr) return usual;
  const int64_t value = found->is_int64() ? found->get_int64() : 0;
  if (value < 1 || value > INT32_MAX) config.refuse("per_layer_config", fmt::format("layer {}: '{}'", layer, key));
  return static_cast<int32_t>(std::clamp<int64_t>(value, 1, INT32_MAX));
}

// Experts that every layer has beside its dense part.
std::optional<MoeSpec> experts_beside(Config& config, const Sizes& sizes) {
  if (!config.flag("enable_moe_block", false)) return std::nullopt;
  if (const int32_t chosen = config.count_or_none("top_k_experts", 0); chosen > 0)
    config.set("num_experts_per_tok", chosen);
  MoeSpec moe = mixture(config, {.experts = 128, .chosen = 8, .width = 704});
  moe.activation = activation(config, "hidden_activation", "gelu_pytorch_tanh");
  moe.router = {.score = RouterScore::softmax,
                .normalise = true,
                .expert_scale = true,
                .logit_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(sizes.width)))};
  return moe;
}

void describe_gemma4(Config& config, ModelSpec& spec) {
  Family family = begin(config, spec,
                        {.vocab = 262144,
                         .width = 2304,
                         .ffn = 9216,
                         .layers = 30,
                         .heads = 8,
                         .kv_heads = 4,
                         .head_dim = 256,
                         .context = 131072,
                         .tied = true},
                        6);
  const Sizes& sizes = family.sizes;
  const std::optional<MoeSpec> moe = experts_beside(config, sizes);
  spec.logit_softcap = static_cast<float>(config.number_or_none("final_logit_softcapping", 0));
  const auto first_full = std::find(family.sliding.begin(), family.sliding.end(), false) - family.sliding.begin();
  const int32_t global_dim =
      of_layer(config, static_cast<int32_t>(first_full), "head_dim", config.count("global_head_dim", sizes.head_dim));
  const bool k_eq_v = config.flag("attention_k_eq_v", false);
  const int32_t global_kv = k_eq_v ? config.count("num_global_key_value_heads", sizes.kv_heads) : sizes.kv_heads;
  const bool wide = config.flag("use_double_wide_mlp", false);
  family.global = add_rope(config, spec, {.head_dim = global_dim, .theta = 1e6, .layer_type = "full_attention"});
  family.local = add_rope(config, spec, {.head_dim = sizes.head_dim, .layer_type = "sliding_attention"});
  for (int32_t i = 0; i < sizes.layers; ++i) {
    const bool sliding = family.sliding[static_cast<size_t>(i)];
    LayerSpec layer = family.layer;
    layer.scaled = true;
    auto& gqa = std::get<GqaSpec>(layer.mixer);
    gqa.kv_from = source_of(config, family, i);
    gqa.window = sliding ? family.window : 0;
    gqa.rope = sliding ? family.local : family.global;
    if (!sliding) gqa.head_dim = global_dim, gqa.kv_heads = global_kv, gqa.k_eq_v = k_eq_v;
    if (of_layer(config, i, "head_dim", gqa.head_dim) != gqa.head_dim)
      config.refuse("per_layer_config", fmt::format("layer {} has heads of another width than its kind", i));
    gqa.kv_heads = of_layer(config, i, "num_key_value_heads", gqa.kv_heads);
    auto& dense = std::get<DenseSpec>(layer.ffn);
    if (wide && gqa.kv_from >= 0) dense.width = std::min(sizes.ffn, INT32_MAX / 2) * 2;
    dense.width = of_layer(config, i, "intermediate_size", dense.width);
    if (moe) {  // it reads the stream, and has the norm that would come before
      layer.ffn = TwofoldSpec{.dense = dense, .moe = *moe, .norm = *layer.ffn_norm};
      layer.ffn_norm.reset();
    }
    spec.layers.push_back(std::move(layer));
  }
}

// The number of deviations that a part `p` of normally distributed numbers stays below.
double deviations_below(double p) {
  double low = -40, high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < p ? low : high) = middle;
  }
  return low;
}

// Of each layer; 0: nothing is left out. GGUF has the deviations, a config.json the part that is left out.
std::vector<float> sparsities(Config& config, int32_t layers) {
  const auto count = static_cast<size_t>(layers);
  std::vector<float> out(count);
  if (config.has("activation_sparsity_scale")) {
    if (std::vector<float> given = config.numbers("activation_sparsity_scale", count); given.size() == count)
      out = std::move(given);
    return out;
  }
  const std::vector<float> parts = config.numbers("activation_sparsity_pattern", count);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!(parts[i] >= 0 && parts[i] < 1))
      config.refuse("activation_sparsity_pattern", "expected parts from 0 to below 1");
    if (parts[i] > 0) out[i] = static_cast<float>(deviations_below(parts[i]));
  }
  return out;
}

void describe_gemma3n(Config& config, ModelSpec& spec) {
  const std::vector<int64_t> widths = widths_of(config);
  Family family = begin(config, spec,
                        {.vocab = 262400,
                         .width = 2048,
                         .ffn = 16384,
                         .layers = 35,
                         .heads = 8,
                         .kv_heads = 2,
                         .head_dim = 256,
                         .context = 32768,
                         .tied = true},
                        5);
  const Sizes& sizes = family.sizes;
  const auto layers = static_cast<size_t>(sizes.layers);
  if (!widths.empty() && widths.size() != layers) config.refuse("intermediate_size", "expected one for each layer");
  spec.logit_softcap = static_cast<float>(config.number_or_none("final_logit_softcapping", 30));
  spec.streams = {.count = config.count("altup_num_inputs", 4),
                  .active = config.count_or_none("altup_active_idx", 0),
                  .scaled = config.flag("altup_correct_scale", true),
                  .norm = *spec.final_norm};
  family.global = add_rope(config, spec, {.head_dim = sizes.head_dim, .theta = 1e6, .layer_type = "full_attention"});
  family.local = add_rope(config, spec,
                          {.head_dim = sizes.head_dim,
                           .layer_type = "sliding_attention",
                           .theta_key = "rope_local_base_freq",
                           .scaled = false});
  const std::vector<float> sparsity = sparsities(config, sizes.layers);
  for (size_t i = 0; i < layers; ++i) {
    LayerSpec layer = family.layer;
    layer.laurel = config.count("laurel_rank", 64);
    auto& gqa = std::get<GqaSpec>(layer.mixer);
    auto& ffn = std::get<DenseSpec>(layer.ffn);
    gqa.kv_from = source_of(config, family, static_cast<int32_t>(i));
    gqa.window = family.sliding[i] ? family.window : 0;
    gqa.rope = family.sliding[i] ? family.local : family.global;
    ffn.sparsity = sparsity[i];
    if (widths.size() == layers) ffn.width = static_cast<int32_t>(widths[i]);
    spec.layers.push_back(std::move(layer));
  }
}

constexpr TensorName kGemma4Names[] = {
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
    {"altup_proj", "model.altup_projections.{}", Take::per_expert},
    {"altup_unembd_proj", "model.altup_unembed_projections.{}", Take::per_expert},
    {"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"},
    {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
    {"blk.{}.inp_gate", "model.layers.{}.per_layer_input_gate"},
    {"blk.{}.proj", "model.layers.{}.per_layer_projection"},
    {"blk.{}.post_norm", "model.layers.{}.post_per_layer_input_norm"},
    {"blk.{}.layer_output_scale", "model.layers.{}.layer_scalar", Take::whole, true},
    {"blk.{}.post_ffw_norm_1", "model.layers.{}.post_feedforward_layernorm_1"},
    {"blk.{}.pre_ffw_norm_2", "model.layers.{}.pre_feedforward_layernorm_2"},
    {"blk.{}.post_ffw_norm_2", "model.layers.{}.post_feedforward_layernorm_2"},
    {"blk.{}.ffn_gate_inp", "model.layers.{}.router.proj"},
    {"blk.{}.ffn_gate_inp_scale", "model.layers.{}.router.scale", Take::whole, true},
    {"blk.{}.ffn_exps_scale", "model.layers.{}.router.per_expert_scale", Take::whole, true},
    {"blk.{}.ffn_gate_exps", "model.layers.{}.experts.gate_up_proj", Take::first_half, true},
    {"blk.{}.ffn_up_exps", "model.layers.{}.experts.gate_up_proj", Take::second_half, true},
    {"blk.{}.ffn_down_exps", "model.layers.{}.experts.down_proj", Take::whole, true},
    {"blk.{}.altup_router", "model.layers.{}.altup.modality_router"},
    {"blk.{}.altup_router_norm", "model.layers.{}.altup.router_norm"},
    {"blk.{}.altup_predict_coef", "model.layers.{}.altup.prediction_coefs"},
    {"blk.{}.altup_correct_coef", "model.layers.{}.altup.correction_coefs"},
    {"blk.{}.altup_correct_scale", "model.layers.{}.altup.correct_output_scale", Take::whole, true},
    {"blk.{}.laurel_l", "model.layers.{}.laurel.linear_left"},
    {"blk.{}.laurel_r", "model.layers.{}.laurel.linear_right"},
    {"blk.{}.laurel_post_norm", "model.layers.{}.laurel.post_laurel_norm"},
};

constexpr TensorName kGemma4GgufNames[] = {
    {"blk.{}.ffn_gate_inp_scale", "blk.{}.ffn_gate_inp.scale", Take::whole, true},
    {"blk.{}.ffn_exps_scale", "blk.{}.ffn_down_exps.scale", Take::whole, true},
};

}  // namespace

extern const Architecture kGemma3n = {
    .name = "gemma3n_text", .describe = describe_gemma3n, .names = kGemma4Names, .gguf = {.name = "gemma3n"}};
extern const Architecture kGemma4 = {.name = "gemma4_text",
                                     .describe = describe_gemma4,
                                     .names = kGemma4Names,
                                     .gguf = {.name = "gemma4", .names = kGemma4GgufNames}};

}  // namespace millrace
