#include "model/archs/common.h"

#include <algorithm>
#include <cmath>

namespace millrace {

namespace {

// Sizes are bounded before anything is made for each head, dimension or layer; check_spec() looks at the whole later.
int32_t bounded(Config& config, std::string_view key, int64_t usual, int32_t max) {
  const int32_t value = config.count(key, usual);
  if (value <= max) return value;
  config.fail(error(Code::invalid, "'{}' is {}: expected at most {}", config.name_of(key), value, max));
  return 1;
}

constexpr int32_t kMaxLayers = 4096, kMaxHeads = 4096, kMaxHeadDim = 65536;
constexpr int32_t kMaxWidth = 1 << 20, kMaxFfn = 1 << 23, kMaxVocab = 1 << 24, kMaxContext = 1 << 30;

}  // namespace

Sizes read_sizes(Config& config, ModelSpec& spec, Sizes usual) {
  Sizes sizes = usual;
  sizes.vocab = bounded(config, "vocab_size", usual.vocab, kMaxVocab);
  sizes.width = bounded(config, "hidden_size", usual.width, kMaxWidth);
  sizes.layers = bounded(config, "num_hidden_layers", usual.layers, kMaxLayers);
  sizes.heads = bounded(config, "num_attention_heads", usual.heads, kMaxHeads);
  sizes.ffn = bounded(config, "intermediate_size", usual.ffn, kMaxFfn);
  sizes.context = bounded(config, "max_position_embeddings", usual.context, kMaxContext);
  sizes.tied = config.flag("tie_word_embeddings", usual.tied);
  const bool own_kv = usual.kv_heads_key && !config.is_null("num_key_value_heads");
  const int32_t usual_kv = own_kv && usual.kv_heads > 0 ? usual.kv_heads : sizes.heads;
  sizes.kv_heads = own_kv ? bounded(config, "num_key_value_heads", usual_kv, kMaxHeads) : sizes.heads;
  const bool own_dim = usual.head_dim_key && !config.is_null("head_dim");
  const int32_t shared = std::max(1, sizes.width / sizes.heads),
                usual_dim = usual.head_dim > 0 ? usual.head_dim : shared;
  sizes.head_dim = own_dim ? bounded(config, "head_dim", usual_dim, kMaxHeadDim) : shared;
  const bool derived = !(own_dim && (config.has("head_dim") || usual.head_dim > 0));
  if (derived && sizes.width % sizes.heads != 0) {
    config.fail(error(Code::invalid, "'{}' is {}, which {} heads ('{}') cannot share evenly",
                      config.name_of("hidden_size"), sizes.width, sizes.heads, config.name_of("num_attention_heads")));
  }
  if (sizes.heads % sizes.kv_heads != 0) {
    config.fail(error(Code::invalid, "'{}' is {}, which does not divide the {} heads of '{}'",
                      config.name_of("num_key_value_heads"), sizes.kv_heads, sizes.heads,
                      config.name_of("num_attention_heads")));
  }
  spec.vocab = sizes.vocab;
  spec.width = sizes.width;
  spec.context = sizes.context;
  spec.tied = sizes.tied;
  return sizes;
}

NormSpec rms_norm(Config& config, std::string_view key, double usual) {
  return {.kind = NormKind::rms, .epsilon = static_cast<float>(config.number(key, usual))};
}

NormSpec layer_norm(Config& config, std::string_view key, double usual, bool bias) {
  return {.kind = NormKind::layer, .epsilon = static_cast<float>(config.number(key, usual)), .bias = bias};
}

Activation activation(Config& config, std::string_view key, std::string_view usual) {
  struct Known {
    std::string_view name;
    Activation meaning;
  };
  static constexpr Known kKnown[] = {
      {"silu", Activation::silu},           {"swish", Activation::silu},
      {"gelu", Activation::gelu},           {"gelu_python", Activation::gelu},
      {"gelu_new", Activation::gelu_tanh},  {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"relu", Activation::relu},           {"gelu_python_tanh", Activation::gelu_tanh},
      {"gelu_fast", Activation::gelu_tanh}, {"relu2", Activation::relu_squared},
  };
  const std::string name = config.text(key, usual);
  for (const Known& known : kKnown) {
    if (known.name == name) return known.meaning;
  }
  config.refuse(key, "expected silu, gelu, gelu_new, gelu_pytorch_tanh, relu or relu2");
  return Activation::silu;
}

GqaSpec attention(const Sizes& sizes) {
  return {.heads = sizes.heads,
          .kv_heads = sizes.kv_heads,
          .head_dim = sizes.head_dim,
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(sizes.head_dim)))};
}

DenseSpec gated_ffn(Config& config, const Sizes& sizes, std::string_view key, std::string_view usual) {
  return {.width = sizes.ffn, .activation = activation(config, key, usual)};
}

DenseSpec plain_ffn(Config& config, const Sizes& sizes, std::string_view key, std::string_view usual) {
  return {.width = sizes.ffn, .activation = activation(config, key, usual), .gated = false};
}

LayerSpec pre_norm_layer(GqaSpec gqa, FfnSpec ffn, NormSpec norm) {
  return {.mixer = std::move(gqa), .ffn = std::move(ffn), .mixer_norm = norm, .ffn_norm = norm};
}

MoeSpec mixture(Config& config, const MoeSpec& usual, std::string_view width_key) {
  MoeSpec moe = usual;
  std::string_view key = "num_experts";
  for (std::string_view other : {"num_local_experts", "n_routed_experts"}) {
    if (!config.has(key) && config.has(other)) key = other;
  }
  moe.experts = config.count(key, usual.experts);
  moe.chosen = config.count("num_experts_per_tok", usual.chosen);
  moe.width = config.count(width_key, usual.width);
  moe.activation = activation(config, "hidden_act", "silu");
  if (moe.chosen > moe.experts) {
    config.fail(error(Code::invalid, "'{}' is {}, but there are only {} experts ('{}')",
                      config.name_of("num_experts_per_tok"), moe.chosen, moe.experts, config.name_of(key)));
  }
  return moe;
}

RouterSpec grouped_router(Config& config) {
  return {.score = RouterScore::sigmoid,
          .choice_bias = true,
          .groups = config.count("n_group", 1),
          .chosen_groups = config.count("topk_group", 1),
          .group_score = GroupScore::best_two,
          .normalise = config.flag("norm_topk_prob", true),
          .epsilon = 1e-20f,
          .scale = static_cast<float>(config.number("routed_scaling_factor", 1))};
}

std::vector<float> alibi_slopes(int32_t heads) {
  // Powers of 2^(-8/n) for the largest power of two n within the heads; the rest takes the odd powers for 2n.
  int32_t whole = 1;
  while (whole * 2 <= heads) whole *= 2;
  std::vector<float> slopes;
  const double base = std::exp2(-8.0 / whole), half = std::exp2(-4.0 / whole);
  for (int32_t i = 1; i <= whole; ++i) slopes.push_back(static_cast<float>(std::pow(base, i)));
  for (int32_t i = 0; i < heads - whole; ++i) slopes.push_back(static_cast<float>(std::pow(half, 2 * i + 1)));
  return slopes;
}

std::vector<bool> sliding_layers(Config& config, int32_t layers, const std::function<bool(int32_t)>& otherwise) {
  std::vector<bool> sliding(static_cast<size_t>(layers));
  const std::vector<std::string> types = config.texts("layer_types", static_cast<size_t>(layers));
  for (int32_t i = 0; i < layers; ++i) {
    const auto index = static_cast<size_t>(i);
    if (types.empty()) {
      sliding[index] = otherwise(i);
    } else if (types[index] == "sliding_attention" || types[index] == "full_attention") {
      sliding[index] = types[index] == "sliding_attention";
    } else {
      config.refuse("layer_types",
                    fmt::format("'{}' of layer {} is neither full_attention nor sliding_attention", types[index], i));
    }
  }
  return sliding;
}

bool is_classifier(Config& config) {
  const std::vector<std::string> names = config.texts("architectures", 0);
  return std::ranges::any_of(names,
                             [](const std::string& name) { return name.ends_with("ForSequenceClassification"); });
}

int32_t labels_of(Config& config) {
  constexpr int32_t kMostLabels = 1 << 16;
  const size_t named = config.object("id2label").values().size();
  const int32_t labels =
      named > 0 && named <= kMostLabels ? static_cast<int32_t>(named) : config.count("num_labels", 2);
  if (labels <= kMostLabels) return labels;
  config.refuse("num_labels", fmt::format("expected at most {}", kMostLabels));
  return 1;
}

}  // namespace millrace
