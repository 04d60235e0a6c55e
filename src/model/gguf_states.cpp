#include "model/gguf_states.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "model/ffns/ffns.h"
#include "model/mixers/mixers.h"

namespace millrace {
namespace {

constexpr std::string_view kFirstKind[] = {"mamba", "jamba"};
constexpr std::string_view kSecondKind[] = {"mamba2", "nemotron_h", "nemotron_h_moe", "granitehybrid", "falcon-h1"};
constexpr std::string_view kDeltaKind[] = {"qwen3next", "qwen35", "qwen35moe"};
constexpr std::string_view kStriped[] = {"qwen35", "qwen35moe"};     // value heads that share a key stand apart
constexpr std::string_view kPartEpsilon = "ssm.dt_b_c_rms_epsilon";  // ours: the format has one epsilon for all norms

template <size_t N>
bool one_of(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

// Layers of one half each.
bool has_halves(std::string_view gguf) { return gguf.starts_with("nemotron_h"); }

// A number, or the largest of a list by layer, where layers of another kind have 0.
int64_t largest(const JsonObject& values, std::string_view key) {
  const Json* value = find(values, key);
  auto number = [](const Json& json) -> int64_t {
    if (json.is_uint64()) return static_cast<int64_t>(std::min(json.get_uint64(), uint64_t{INT32_MAX}));
    return json.is_int64() ? json.get_int64() : 0;
  };
  if (value == nullptr) return 0;
  if (!value->is_array()) return number(*value);
  int64_t most = 0;
  for (const Json& each : value->get_array()) most = std::max(most, number(each));
  return most;
}

class States {
 public:
  States(const Checkpoint& file, std::string_view gguf, JsonObject& values)
      : file_(file), arch_(gguf), values_(values), layers_(std::clamp<int64_t>(integer("block_count"), 0, 4096)) {}

  Result<void> read() {
    settle_lists();
    if (arch_ == "lfm2") return read_lfm2();
    if (arch_ == "minimax-01") return read_minimax();
    for (std::string_view key : {"ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank"}) {
      if (integer(key) < 1) return error(Code::invalid, "the key '{}.{}' is missing, or not a count", arch_, key);
    }
    const bool conv_bias = any("ssm_conv1d.bias"), bias = any("ssm_in.bias");
    for (std::string_view key : {"use_conv_bias", "mamba_conv_bias"}) values_[key] = conv_bias;
    values_["mamba_proj_bias"] = bias;
    if (const Json* epsilon = find(values_, "rms_norm_eps")) {
      const Json value = *epsilon;
      values_["layer_norm_epsilon"] = value;
    }
    if (one_of(kDeltaKind, arch_)) return read_delta();
    return one_of(kFirstKind, arch_) ? read_channels() : read_heads();
  }

 private:
  int64_t integer(std::string_view key) const {
    const auto number = file_.metadata().get_int(fmt::format("{}.{}", arch_, key), 0);
    return number.ok() ? std::clamp<int64_t>(*number, 0, INT32_MAX) : 0;
  }
  bool there(int64_t layer, std::string_view tensor) const {
    return file_.find(fmt::format("blk.{}.{}", layer, tensor)) != nullptr;
  }
  bool any(std::string_view tensor) const {
    for (int64_t i = 0; i < layers_; ++i)
      if (there(i, tensor)) return true;
    return false;
  }

  // Counts that files give by layer. A model without attention has no heads, and one without a feed-forward part no
  // width of it.
  void settle_lists() {
    for (std::string_view key : {"num_attention_heads", "num_key_value_heads", "intermediate_size"})
      values_[key] = std::max<int64_t>(1, largest(values_, key));
  }

  // The type of each layer, by the tensors it has.
  JsonArray types(std::string_view state, std::string_view attention) const {
    const int64_t ahead = integer("nextn_predict_layers");  // counted with the others
    JsonArray list;
    for (int64_t i = 0; i < layers_ - ahead; ++i) {
      const bool attends = there(i, "attn_k.weight"),
                 keeps = there(i, "ssm_in.weight") || there(i, "shortconv.conv.weight");
      const std::string_view other = there(i, "ffn_gate_inp.weight") ? "moe" : "mlp";
      list.emplace_back(attends ? attention : keeps || !has_halves(arch_) ? state : other);
    }
    return list;
  }

  Result<void> read_lfm2() {
    if (integer("shortconv.l_cache") < 1)
      return error(Code::invalid, "the key 'lfm2.shortconv.l_cache' is missing, or not a count");
    values_["conv_L_cache"] = integer("shortconv.l_cache");
    values_["layer_types"] = types("conv", "full_attention");
    values_["block_auto_adjust_ff_dim"] = false;
    values_["conv_bias"] = any("shortconv.in_proj.bias");
    if (const Json* epsilon = find(values_, "rms_norm_eps")) {
      const Json value = *epsilon;
      values_["norm_eps"] = value;
    }
    return {};
  }

  // Its files have one factor for the stream, whatever is added to it.
  Result<void> read_minimax() {
    values_["layer_types"] = types("linear_attention", "full_attention");
    if (const Json* keep = find(values_, "residual_multiplier")) {
      const Json value = *keep;
      for (std::string_view key : {"full_attn_alpha_factor", "linear_attn_alpha_factor", "mlp_alpha_factor"})
        values_[key] = value;
    }
    return {};
  }

  // Layers number `offset` and every `period`-th after it; an error if it is no such rule.
  Result<void> put_rule(std::string_view tensor, std::string_view period_key, std::string_view offset_key) {
    std::vector<int64_t> those;
    for (int64_t i = 0; i < layers_; ++i)
      if (there(i, tensor)) those.push_back(i);
    const int64_t period = those.size() > 1 ? those[1] - those[0] : std::max<int64_t>(layers_, 1);
    const int64_t offset = those.empty() ? layers_ : those[0];
    for (int64_t i = 0; i < layers_; ++i) {
      if ((i % period == offset) != there(i, tensor))
        return error(Code::unsupported, "layers with {} follow no rule: layer {} is the first that differs", tensor, i);
    }
    values_[period_key] = period;
    values_[offset_key] = offset;
    return {};
  }

  Result<void> read_channels() {
    const int64_t inner = integer("ssm.inner_size"), width = largest(values_, "hidden_size");
    if (arch_ == "mamba") {
      values_["intermediate_size"] = inner;
      values_["state_size"] = integer("ssm.state_size");
      values_["conv_kernel"] = integer("ssm.conv_kernel");
      values_["time_step_rank"] = integer("ssm.time_step_rank");
      values_["use_bias"] = any("ssm_in.bias");
      TRY(const bool normed, file_.metadata().get_bool("mamba.ssm.dt_b_c_rms", false));
      if (normed) values_["model_type"] = "falcon_mamba";
      if (const Json* epsilon = find(values_, "rms_norm_eps"); normed && epsilon != nullptr) {
        const Json value = *epsilon;
        values_["mixer_rms_eps"] = value;
      }
      const std::string own = fmt::format("mamba.{}", kPartEpsilon);
      if (normed && file_.metadata().find(own) != nullptr) {
        TRY(const double epsilon, file_.metadata().get_number(own, 0));
        values_["mixer_rms_eps"] = epsilon;
      }
      return {};
    }
    values_["mamba_expand"] = width > 0 ? static_cast<double>(inner) / static_cast<double>(width) : 0;
    values_["mamba_d_state"] = integer("ssm.state_size");
    values_["mamba_d_conv"] = integer("ssm.conv_kernel");
    values_["mamba_dt_rank"] = integer("ssm.time_step_rank");
    TRY_VOID(put_rule("attn_k.weight", "attn_layer_period", "attn_layer_offset"));
    if (largest(values_, "num_experts") < 1) values_["num_experts"] = 1;
    if (largest(values_, "num_experts_per_tok") < 1) values_["num_experts_per_tok"] = 1;
    return put_rule("ffn_gate_inp.weight", "expert_layer_period", "expert_layer_offset");
  }

  Result<void> read_heads() {
    const int64_t inner = integer("ssm.inner_size"), heads = integer("ssm.time_step_rank");
    const int64_t groups = std::max<int64_t>(1, integer("ssm.group_count")), each = inner / heads;
    if (inner % heads != 0) return error(Code::invalid, "{} channels in {} heads: expected a divisor", inner, heads);
    struct Names {
      std::string_view heads, dim, state, conv, groups;
    };
    const Names names = arch_ == "mamba2" ? Names{"num_heads", "head_dim", "state_size", "conv_kernel", "n_groups"}
                        : has_halves(arch_)
                            ? Names{"mamba_num_heads", "mamba_head_dim", "ssm_state_size", "conv_kernel", "n_groups"}
                            : Names{"mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_d_conv", "mamba_n_groups"};
    values_[names.heads] = heads;
    values_[names.dim] = each;
    values_[names.state] = integer("ssm.state_size");
    values_[names.conv] = integer("ssm.conv_kernel");
    values_[names.groups] = groups;
    values_["use_bias"] = any("ssm_in.bias");
    if (has_halves(arch_)) {
      values_["layers_block_type"] = types("linear_attention", "full_attention");
      values_["n_shared_experts"] = any("ffn_up_shexp.weight") ? 1 : 0;
      values_["moe_shared_expert_intermediate_size"] =
          std::max<int64_t>(1, largest(values_, "shared_expert_intermediate_size"));
    }
    if (arch_ == "granitehybrid") read_granite();
    if (arch_ == "falcon-h1") {  // multipliers are in the weights
      values_["mamba_d_ssm"] = inner;
      values_["mamba_rms_norm"] = any("ssm_norm.weight");
      values_["mamba_norm_before_gate"] = false;
    }
    return {};
  }

  // The gated delta rule. Keys and values are equally wide there.
  Result<void> read_delta() {
    const int64_t heads = integer("ssm.time_step_rank"), inner = integer("ssm.inner_size");
    if (integer("ssm.group_count") < 1)
      return error(Code::invalid, "the key '{}.ssm.group_count' is missing, or not a count", arch_);
    if (inner % heads != 0) return error(Code::invalid, "{} channels in {} heads: expected a divisor", inner, heads);
    values_["linear_num_key_heads"] = integer("ssm.group_count");
    values_["linear_num_value_heads"] = heads;
    values_["linear_key_head_dim"] = integer("ssm.state_size");
    values_["linear_value_head_dim"] = inner / heads;
    values_["linear_conv_kernel_dim"] = integer("ssm.conv_kernel");
    values_["linear_value_heads_striped"] = one_of(kStriped, arch_);
    values_["layer_types"] = types("linear_attention", "full_attention");
    values_["attention_bias"] = false;
    return {};
  }

  void read_granite() {
    values_["layer_types"] = types("linear_attention", "full_attention");
    const int64_t experts = largest(values_, "num_experts");
    values_["num_local_experts"] = experts;
    values_["shared_intermediate_size"] =
        experts > 0 ? largest(values_, "shared_expert_intermediate_size") : largest(values_, "intermediate_size");
    const int64_t heads = largest(values_, "num_attention_heads");
    if (find(values_, "attention_multiplier") == nullptr && heads > 0) {
      int64_t each = largest(values_, "head_dim");
      if (each < 1) each = std::max<int64_t>(1, largest(values_, "hidden_size") / heads);
      values_["attention_multiplier"] = 1 / std::sqrt(static_cast<double>(each));
    }
    const auto turns = file_.metadata().get_bool("granitehybrid.rope.scaling.finetuned", false);
    if (turns.ok() && *turns) values_["position_embedding_type"] = "rope";
  }

  const Checkpoint& file_;
  std::string_view arch_;
  JsonObject& values_;
  int64_t layers_;
};

const SsmSpec* ssm_of(const LayerSpec& layer) {
  return std::get_if<SsmSpec>(layer.beside ? &*layer.beside : &layer.mixer);
}

// n if every n-th layer, and no other, attends; else 0.
int64_t attention_interval(const ModelSpec& spec) {
  auto attends = [&](size_t i) { return std::holds_alternative<GqaSpec>(spec.layers[i].mixer); };
  size_t first = 0;
  while (first < spec.layers.size() && !attends(first)) ++first;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (attends(i) != ((i + 1) % (first + 1) == 0)) return 0;
  }
  return static_cast<int64_t>(first) + 1;
}

void put_interval(GgufKeys& keys, const ModelSpec& spec) {
  if (const int64_t interval = attention_interval(spec); interval > 0) {
    keys.put("full_attention_interval", interval);
  } else {
    std::vector<bool> recurrent;
    for (const LayerSpec& layer : spec.layers) recurrent.push_back(!std::holds_alternative<GqaSpec>(layer.mixer));
    keys.put_flags("attention.recurrent_layers", recurrent);
  }
}

void put_delta(GgufKeys& keys, const ModelSpec& spec, const DeltaSpec& delta) {
  keys.put("ssm.conv_kernel", delta.conv);
  keys.put("ssm.inner_size", int64_t{delta.v_heads} * delta.v_dim);
  keys.put("ssm.state_size", delta.k_dim);
  keys.put("ssm.time_step_rank", delta.v_heads);
  keys.put("ssm.group_count", delta.k_heads);
  put_interval(keys, spec);
  if (!one_of(kStriped, keys.architecture()) || spec.ropes.empty()) return;
  // How rotary pairs are shared out among the axes of pictures; in a text all axes are one.
  const int32_t pairs = spec.ropes.front().dims / 2;
  keys.put_counts("rope.dimension_sections", {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0});
}

// Factors of Falcon H1 that its files have in the weights.
std::vector<float> factors_of(const ModelSpec& spec, const Slot& slot, std::string_view tensor) {
  auto is = [&](std::string_view stem) { return tensor.ends_with(stem); };
  auto rows = [&](float factor) { return std::vector<float>(static_cast<size_t>(slot.rows), factor); };
  if (slot.layer < 0) {
    if (tensor == "token_embd") return rows(spec.embed_scale);
    return tensor == "output" ? rows(spec.logit_scale) : std::vector<float>();
  }
  const LayerSpec& layer = spec.layers[static_cast<size_t>(slot.layer)];
  const auto* gqa = std::get_if<GqaSpec>(&layer.mixer);
  const auto* dense = std::get_if<DenseSpec>(&layer.ffn);
  const SsmSpec* ssm = ssm_of(layer);
  if (gqa == nullptr || dense == nullptr || ssm == nullptr) return {};
  if (is(".attn_k")) return rows(gqa->scale * std::sqrt(static_cast<float>(gqa->head_dim)));
  if (is(".attn_output")) return rows(gqa->out_scale);
  if (is(".ffn_gate")) return rows(dense->gate_scale);
  if (is(".ffn_down")) return rows(dense->out_scale);
  if (is(".ssm_out")) return rows(ssm->out_scale);
  if (!is(".ssm_in")) return {};
  const int64_t shared = int64_t{ssm->groups} * ssm->state;
  const std::array<int64_t, 5> sizes = {ssm->inner, ssm->inner, shared, shared, ssm->heads};
  std::vector<float> out;
  for (size_t part = 0; part < sizes.size(); ++part)
    out.insert(out.end(), static_cast<size_t>(sizes[part]), ssm->part_scales[part]);
  return out;
}

}  // namespace

std::vector<float> folded_factors(const ModelSpec& spec, const Slot& slot, std::string_view gguf,
                                  std::string_view tensor) {
  if (gguf != "falcon-h1") return {};
  std::vector<float> factors = factors_of(spec, slot, tensor);
  const bool none = std::all_of(factors.begin(), factors.end(), [](float x) { return std::abs(x - 1) < 1e-6f; });
  return none ? std::vector<float>() : factors;
}

Woven woven_slots(const ModelSpec& spec, const Slot& slot, std::string_view gguf) {
  if (slot.layer < 0 || !has_states(gguf)) return {};
  const MixerSpec& mixer = spec.layers[static_cast<size_t>(slot.layer)].mixer;
  const bool queries = slot.name.ends_with(".attn_q");
  if (const auto* gqa = std::get_if<GqaSpec>(&mixer); gqa != nullptr && gqa->gated && queries)
    return {.slots = 2, .parts = gqa->heads, .name = "attn_q"};
  if (const auto* decay = std::get_if<DecaySpec>(&mixer); decay != nullptr && queries)
    return {.slots = 3, .parts = decay->heads, .name = "attn_qkv"};
  const auto* delta = std::get_if<DeltaSpec>(&mixer);
  if (delta == nullptr || gguf != "qwen3next" || !slot.name.ends_with(".ssm_beta")) return {};
  return {.slots = 2, .parts = delta->k_heads, .name = "ssm_ba"};
}

bool stripes_values(std::string_view gguf) { return one_of(kStriped, gguf); }

std::vector<int64_t> striped_order(const ModelSpec& spec, const Slot& slot, std::string_view gguf, bool columns) {
  if (slot.layer < 0 || !stripes_values(gguf)) return {};
  const auto* delta = std::get_if<DeltaSpec>(&spec.layers[static_cast<size_t>(slot.layer)].mixer);
  if (delta == nullptr || delta->striped || delta->k_heads == delta->v_heads) return {};
  auto is = [&](std::string_view stem) { return slot.name.ends_with(stem); };
  if (columns != is(".ssm_out")) return {};
  const int64_t before = 2 * int64_t{delta->k_heads} * delta->k_dim;
  int64_t first = 0, each = delta->v_dim;
  if (is(".attn_qkv")) {
    first = before;
  } else if (is(".ssm_conv1d")) {
    first = before * delta->conv;
    each *= delta->conv;
  } else if (is(".ssm_beta") || is(".ssm_alpha") || is(".ssm_dt_b") || is(".ssm_a")) {
    each = 1;
  } else if (!is(".attn_gate") && !is(".ssm_out")) {
    return {};
  }
  std::vector<int64_t> order(static_cast<size_t>(first));
  std::iota(order.begin(), order.end(), int64_t{0});
  const int64_t shared = delta->v_heads / delta->k_heads;
  for (int64_t h = 0; h < delta->v_heads; ++h) {
    const int64_t from = h % delta->k_heads * shared + h / delta->k_heads;
    for (int64_t i = 0; i < each; ++i) order.push_back(first + from * each + i);
  }
  return order;
}

bool has_states(std::string_view gguf) {
  return gguf == "lfm2" || gguf == "minimax-01" || one_of(kFirstKind, gguf) || one_of(kSecondKind, gguf) ||
         one_of(kDeltaKind, gguf);
}

Result<void> read_states(const Checkpoint& file, std::string_view gguf, JsonObject& values) {
  return States(file, gguf, values).read();
}

void put_states(GgufKeys& keys, const ModelSpec& spec) {
  const std::string_view gguf = keys.architecture();
  bool attends = false;
  std::vector<int32_t> widths;
  for (const LayerSpec& layer : spec.layers) {
    attends = attends || std::holds_alternative<GqaSpec>(layer.mixer);
    widths.push_back(width_of(layer.ffn));
  }
  if (!attends) keys.put("attention.head_count", 0);
  if (!attends) keys.put("feed_forward_length", 0);
  if (has_halves(gguf)) keys.put_counts("feed_forward_length", widths);
  if (gguf == "granitehybrid") {
    for (const LayerSpec& layer : spec.layers) {
      const auto* gqa = std::get_if<GqaSpec>(&layer.mixer);
      if (gqa == nullptr) continue;
      keys.put_flag("rope.scaling.finetuned", gqa->rope >= 0);
      break;
    }
  }
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* conv = std::get_if<ShortConvSpec>(&layer.mixer)) return keys.put("shortconv.l_cache", conv->conv);
    if (const auto* delta = std::get_if<DeltaSpec>(&layer.mixer)) return put_delta(keys, spec, *delta);
    if (std::holds_alternative<DecaySpec>(layer.mixer)) {
      keys.put_number("residual_scale", layer.mixer_keep);
      return put_interval(keys, spec);
    }
    const SsmSpec* ssm = ssm_of(layer);
    if (ssm == nullptr) continue;
    keys.put("ssm.conv_kernel", ssm->conv);
    keys.put("ssm.inner_size", ssm->inner);
    keys.put("ssm.state_size", ssm->state);
    keys.put("ssm.time_step_rank", ssm->rank > 0 ? ssm->rank : ssm->heads);
    if (ssm->rank == 0) keys.put("ssm.group_count", ssm->groups);
    if (gguf == "mamba") keys.put_flag("ssm.dt_b_c_rms", ssm->part_norm.has_value());
    if (gguf == "mamba" && ssm->part_norm) keys.put_number(kPartEpsilon, ssm->part_norm->epsilon);
    return;
  }
}

std::string_view unsayable_states(const ModelSpec& spec, std::string_view gguf) {
  for (const LayerSpec& layer : spec.layers) {
    const bool folds = gguf == "falcon-h1";  // factors go into the weights
    const LayerSpec& front = spec.layers.front();
    if (layer.mixer_keep != front.mixer_keep || layer.ffn_keep != front.mixer_keep) return "several residual factors";
    if (layer.shared || (layer.beside && !folds)) return "halves beside its mixers";
    if (const auto* delta = std::get_if<DeltaSpec>(&layer.mixer); delta != nullptr && delta->k_dim != delta->v_dim)
      return "keys and values of different widths";
    const SsmSpec* ssm = ssm_of(layer);
    if (ssm == nullptr) continue;
    if (folds && ssm->norm && ssm->norm_before_gate) return "norms before the gate";
    const float least = has_halves(gguf) ? 0.001f : 0;
    if (ssm->least_step != least || ssm->most_step != 0) return "limits of steps";
    if (!folds && (ssm->out_scale != 1 ||
                   std::any_of(ssm->part_scales.begin(), ssm->part_scales.end(), [](float x) { return x != 1; })))
      return "scales of a state space layer";
    if (!ssm->conv_bias) return "a convolution without a bias";
  }
  return {};
}

std::vector<int64_t> state_shape(const ModelSpec& spec, int32_t layer, std::string_view stem, int64_t size,
                                 int32_t turned) {
  if (turned > 0) return {size / turned, turned};
  if (layer < 0) return {};
  const SsmSpec* ssm = ssm_of(spec.layers[static_cast<size_t>(layer)]);
  if (ssm == nullptr || ssm->rank > 0) return {};
  if (stem == "ssm_a" || stem == "ssm_d") return {size, 1};
  if (stem == "ssm_norm") return {ssm->groups, size / ssm->groups};
  return {};
}

}  // namespace millrace
