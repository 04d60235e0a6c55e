#include "model/gguf_keys.h"
#include "model/gguf_states.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/rope.h"
#include "tensor/dtype.h"

namespace millrace {
namespace {

constexpr auto kKeys = std::to_array<GgufKey>({
    {"vocab_size", "vocab_size"},
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"feed_forward_length", "intermediate_size"},
    {"hidden_activation", "hidden_act"},
    {"use_parallel_residual", "use_parallel_residual"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.key_length_swa", "head_dim_swa"},
    {"attention.key_length_mla", "key_length_mla"},
    {"attention.value_length_mla", "value_length_mla"},
    {"attention.value_length", "value_length"},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"attention.kv_lora_rank", "kv_lora_rank"},
    {"attention.shared_kv_layers", "num_kv_shared_layers"},
    {"attention.kv_from", "kv_from"},
    {"embedding_length_per_layer_input", "hidden_size_per_layer_input"},
    {"altup.num_inputs", "altup_num_inputs"},
    {"altup.active_idx", "altup_active_idx"},
    {"activation_sparsity_scale", "activation_sparsity_scale"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.layer_norm_epsilon", "layer_norm_eps"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.causal", "is_causal"},
    {"pooling_type", "pooling_type"},
    {"normalised_vectors", "normalised_vectors"},
    {"attention.clamp_kqv", "clip_qkv"},
    {"attention.scale", "attention_multiplier"},
    {"attention.rope_pattern", "no_rope_layers"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"logit_scale", "logit_scale"},
    {"residual_scale", "residual_multiplier"},
    {"embedding_scale", "embedding_multiplier"},
    {"rope.dimension_count", "rotary_dims"},
    {"rope.freq_base", "rope_theta"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"rope.scaling.original_context_length", "original_max_position_embeddings"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"nextn_predict_layers", "num_nextn_predict_layers"},
    {"interleave_moe_layer_step", "interleave_moe_layer_step"},
    {"attention.chunk_size", "attention_chunk_size"},
    {"attention.temperature_scale", "attn_scale"},
    {"attention.temperature_length", "floor_scale"},
});

// An array whose elements are all equal says one thing.
Json as_json(const MetaArray& array) {
  JsonArray out;
  if (auto integers = array.integers(); integers.ok()) {
    for (int64_t value : *integers) out.emplace_back(value);
  } else if (auto floats = array.floats(); floats.ok()) {
    for (float value : *floats) out.emplace_back(static_cast<double>(value));
  }
  const bool same =
      !out.empty() && std::all_of(out.begin(), out.end(), [&](const Json& each) { return each == out.front(); });
  return same && array.type() != MetaType::boolean ? Json(out.front()) : Json(std::move(out));
}

Json as_json(const MetaValue& value) {
  return std::visit(
      [](const auto& held) -> Json {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, MetaArray>) {
          return as_json(held);
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          return Json(boost::json::string(held));
        } else {
          return Json(held);
        }
      },
      value);
}

Result<JsonArray> numbers_of(const StoredTensor& tensor) {
  TRY(const std::vector<float> values, read_floats(tensor));
  JsonArray out;
  for (float value : values) out.emplace_back(static_cast<double>(value));
  return out;
}

bool has_experts(std::string_view architecture) {
  static constexpr std::string_view kThose[] = {
      "olmoe",     "phimoe", "qwen2moe",      "qwen3moe", "glm4moe",   "minimax-m2", "gpt-oss",    "llama4",
      "deepseek2", "jamba",  "granitehybrid", "gemma4",   "qwen3next", "qwen35moe",  "minimax-01", "nemotron_h_moe"};
  return std::find(std::begin(kThose), std::end(kThose), architecture) != std::end(kThose);
}

class Reader {
 public:
  Reader(const Checkpoint& checkpoint, std::string arch) : file_(checkpoint), arch_(std::move(arch)) {}

  Result<Config> read() {
    TRY(const Architecture* architecture, find_gguf_architecture(arch_));
    for (const GgufKey& key : kKeys) {
      const std::string name = fmt::format("{}.{}", arch_, key.gguf);
      if (const MetaEntry* entry = file_.metadata().find(name)) set(key.config, as_json(entry->value), name);
    }
    values_["model_type"] = std::string(architecture->name);
    TRY_VOID(read_experts(*architecture));
    if (has_states(arch_)) TRY_VOID(read_states(file_, arch_, values_));
    TRY_VOID(require(
        {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings"}));
    read_tensors();
    fill_in();
    TRY_VOID(read_windows());
    TRY_VOID(read_rope());
    adjust();
    TRY_VOID(read_mask());
    return Config(file_.path().filename().string(), std::move(values_), std::move(names_));
  }

 private:
  bool has(std::string_view key) const { return find(values_, key) != nullptr; }
  bool there(std::string_view tensor) const { return file_.find(tensor) != nullptr; }
  void set(std::string_view key, Json value, std::string name = {}) {
    values_[key] = std::move(value);
    if (!name.empty()) names_.insert_or_assign(std::string(key), std::move(name));
  }
  int64_t integer(std::string_view key) const {
    const Json* found = find(values_, key);
    if (found == nullptr) return 0;
    if (found->is_uint64()) return static_cast<int64_t>(std::min(found->get_uint64(), uint64_t{INT32_MAX}));
    return found->is_int64() ? found->get_int64() : 0;
  }
  std::string text(std::string_view key) const {
    const MetaEntry* entry = file_.metadata().find(fmt::format("{}.{}", arch_, key));
    const auto* held = entry != nullptr ? std::get_if<std::string_view>(&entry->value) : nullptr;
    return held != nullptr ? std::string(*held) : std::string();
  }
  Result<double> number(std::string_view key, double otherwise) const {
    return file_.metadata().get_number(fmt::format("{}.{}", arch_, key), otherwise);
  }

  Result<void> require(std::initializer_list<std::string_view> keys) const {
    for (const GgufKey& key : kKeys) {
      if (std::find(keys.begin(), keys.end(), key.config) != keys.end() && !has(key.config)) {
        return error(Code::invalid, "the key '{}.{}' is missing", arch_, key.gguf);
      }
    }
    return {};
  }

  // Experts of an architecture that has them; layers that predict further tokens are counted with the others.
  Result<void> read_experts(const Architecture& architecture) {
    const int64_t experts = integer("num_experts");
    if (experts <= 0) {
      for (std::string_view key : {"num_experts", "num_experts_per_tok"}) values_.erase(key);
    } else if (arch_ == "llama") {
      values_["model_type"] = "mixtral";
    } else if (!has_experts(arch_)) {
      return error(Code::unsupported,
                   "{} with {} experts is not supported yet; the nearest that is: {} without experts", arch_, experts,
                   architecture.name);
    }
    if (const int64_t ahead = integer("num_nextn_predict_layers"); ahead > 0)
      set("num_hidden_layers", std::max<int64_t>(1, integer("num_hidden_layers") - ahead));
    // What these files leave to whoever reads them.
    if (arch_ == "qwen3moe" && !has("norm_topk_prob")) set("norm_topk_prob", true);
    if (has("interleave_moe_layer_step")) set("decoder_sparse_step", values_["interleave_moe_layer_step"]);
    if (arch_ == "llama4") {
      if (has("intermediate_size")) set("intermediate_size_mlp", values_["intermediate_size"]);
      if (has("moe_intermediate_size")) set("intermediate_size", values_["moe_intermediate_size"]);
    }
    if (arch_ == "gemma4") set("enable_moe_block", experts > 0);
    if (arch_ == "glm4moe" && !has("first_k_dense_replace")) set("first_k_dense_replace", 0);
    if (arch_ == "deepseek2") {
      TRY(const int64_t gating, file_.metadata().get_int(fmt::format("{}.expert_gating_func", arch_), 1));
      if (gating == 2) values_["model_type"] = "deepseek_v3";
      if (integer("n_group") > 1) set("topk_method", "group_limited_greedy");
    }
    if ((arch_ == "glm4moe" || arch_ == "deepseek2") && !has("n_shared_experts")) {
      const int64_t shared = integer("shared_expert_intermediate_size"), each = integer("moe_intermediate_size");
      set("n_shared_experts", each > 0 ? shared / each : 0);
    }
    return {};
  }

  // Of models that write by filling masks.
  Result<void> read_mask() {
    for (std::string_view key : {"diffusion.mask_token_id", "tokenizer.ggml.mask_token_id"}) {
      TRY(const int64_t mask, file_.metadata().get_int(key, -1));
      if (mask >= 0) set("mask_token_id", mask, std::string(key));
    }
    TRY(const bool shifted, file_.metadata().get_bool("diffusion.shift_logits", false));
    if (shifted) set("shift_logits", true);
    return {};
  }

  // What the file tells by the tensors it has.
  void read_tensors() {
    const bool qkv_bias = there("blk.0.attn_q.bias") || there("blk.0.attn_qkv.bias");
    for (std::string_view key : {"attention_bias", "use_bias", "use_qkv_bias", "bias"})
      if (!has_states(arch_) || !has(key)) set(key, qkv_bias);
    set("attention_out_bias", there("blk.0.attn_output.bias"));
    set("mlp_bias", there("blk.0.ffn_up.bias"));
    for (std::string_view key : {"qk_layernorm", "use_qk_norm"}) set(key, there("blk.0.attn_q_norm.weight"));
    set("lm_head_bias", there("output.bias"));
    set("qkv_bias", qkv_bias);
    set("tie_word_embeddings", true);  // unless a head is there that differs
    if (const StoredTensor* table = file_.find("token_embd.weight");
        table != nullptr && table->shape.size() == 2 && !has("vocab_size")) {
      set("vocab_size", table->shape[0]);
    }
    if (const StoredTensor* table = file_.find("per_layer_token_embd.weight");
        table != nullptr && table->shape.size() == 2) {
      set("vocab_size_per_layer_input", table->shape[0]);
    }
    if (const StoredTensor* left = file_.find("blk.0.laurel_l.weight"); left != nullptr && left->shape.size() == 2)
      set("laurel_rank", left->shape[0]);
    read_classifier();
    // Falcon: by its norms, and its qkv is always in one order.
    set("new_decoder_architecture", true);
    set("num_ln_in_parallel_attn", there("blk.0.attn_norm_2.weight") ? 2 : 1);
  }

  // An encoder's tables and its classifier.
  void read_classifier() {
    if (const StoredTensor* types = file_.find("token_types.weight"); types != nullptr && types->shape.size() == 2)
      set("type_vocab_size", types->shape[0]);
    else
      set("type_vocab_size", 0);
    if (arch_ == "gemma-embedding") set("use_bidirectional_attention", true);
    const StoredTensor* labels = file_.find("cls.output.weight");
    if (labels == nullptr || labels->shape.empty()) return;
    set("architectures", JsonArray{"ForSequenceClassification"});
    set("num_labels", labels->shape.size() == 2 ? labels->shape[0] : 1);
    set("classifier_bias", there("cls.bias"));
  }

  // Absent keys mean what they mean to llama.cpp, not what they mean in a config.json.
  void fill_in() {
    const int64_t heads = integer("num_attention_heads");
    if (!has("num_key_value_heads")) set("num_key_value_heads", heads);
    if (!has("head_dim") && heads > 0) set("head_dim", integer("hidden_size") / heads);
    if (!has("rope_theta")) set("rope_theta", 10000.0);
    if (const Json* epsilon = find(values_, "layer_norm_eps")) {
      const Json value = *epsilon;
      const std::string name = names_["layer_norm_eps"];
      for (std::string_view key : {"layer_norm_epsilon", "norm_epsilon", "norm_eps"}) set(key, value, name);
    }
    if (const Json* act = find(values_, "hidden_act")) {
      const Json value = *act;
      set("hidden_activation", value, names_["hidden_act"]);
    } else if (arch_ == "bitnet") {
      set("hidden_act", "silu");
    }
  }

  Result<void> read_windows() {
    if (integer("sliding_window") <= 0) {
      if (arch_ != "gemma2") values_["sliding_window"] = nullptr;
      return {};
    }
    set("use_sliding_window", true);
    set("max_window_layers", 0);
    const std::string key = fmt::format("{}.attention.sliding_window_pattern", arch_);
    const MetaEntry* entry = file_.metadata().find(key);
    if (arch_ == "llama") values_["model_type"] = entry != nullptr ? "ministral" : "mistral";
    if (arch_ == "olmo2") values_["model_type"] = "olmo3";
    if (entry == nullptr) return {};
    const int64_t layers = std::clamp<int64_t>(integer("num_hidden_layers"), 0, 4096);
    JsonArray types;
    if (const auto* array = std::get_if<MetaArray>(&entry->value)) {
      TRY(const std::vector<int64_t> sliding, array->integers());
      for (int64_t here : sliding) types.emplace_back(here != 0 ? "sliding_attention" : "full_attention");
    } else {
      TRY(const int64_t period, file_.metadata().get_int(key, 0));
      for (int64_t i = 0; i < layers; ++i) {
        types.emplace_back(period <= 0 || i % period < period - 1 ? "sliding_attention" : "full_attention");
      }
    }
    set("layer_types", std::move(types), key);
    return {};
  }

  Result<void> read_rope() {
    TRY(const double linear_key, number("rope.scale_linear", 1));
    TRY(const double factor, number("rope.scaling.factor", linear_key));
    TRY(const double attention, number("rope.scaling.attn_factor", 1));
    const std::string type = text("rope.scaling.type");
    JsonObject rope;
    if (const StoredTensor* long_factors = file_.find("rope_factors_long.weight")) {
      rope["rope_type"] = "longrope";
      rope["attention_factor"] = attention;
      TRY(JsonArray values, numbers_of(*long_factors));
      rope["long_factor"] = std::move(values);
      if (const StoredTensor* short_factors = file_.find("rope_factors_short.weight")) {
        TRY(JsonArray shorter, numbers_of(*short_factors));
        rope["short_factor"] = std::move(shorter);
      }
    } else if (type == "yarn") {
      rope["rope_type"] = "yarn";
      rope["factor"] = factor;
      TRY(const double fast, number("rope.scaling.yarn_beta_fast", 32));
      TRY(const double slow, number("rope.scaling.yarn_beta_slow", 1));
      TRY(const double all, number("rope.scaling.yarn_log_multiplier", 0));
      rope["beta_fast"] = fast;
      rope["beta_slow"] = slow;
      if (arch_ == "gpt-oss") rope["truncate"] = false;
      if (has("kv_lora_rank")) {  // what it says goes into the scale of scores, and sines and cosines stay as they are
        if (all != 0) rope["mscale"] = rope["mscale_all_dim"] = all * 10;
      } else {
        rope["attention_factor"] = yarn_magnitude(factor, 1) / (all != 0 ? yarn_magnitude(factor, all) : 1) * attention;
      }
    } else if (const StoredTensor* factors = file_.find("rope_freqs.weight")) {
      rope["rope_type"] = "factors";
      TRY(JsonArray values, numbers_of(*factors));
      for (Json& value : values) value = value.get_double() * factor;
      rope["factors"] = std::move(values);
      rope["attention_factor"] = attention;
    } else if (factor != 1 && type != "none") {
      rope["rope_type"] = "linear";
      rope["factor"] = factor;
    }
    if (!rope.empty()) set("rope_scaling", std::move(rope));
    return {};
  }

  // Keys that mean another thing, or are worked out otherwise, in one architecture.
  void adjust() {
    if ((arch_ == "granite" || arch_ == "granitehybrid") && has("logit_scale"))
      set("logits_scaling", values_["logit_scale"], names_["logit_scale"]);
    if (arch_ == "gemma2" || arch_ == "gemma3" || arch_ == "gemma-embedding") {
      const Json* scale = find(values_, "attention_multiplier");
      const double given = scale != nullptr && scale->is_number() ? scale->to_number<double>() : 0;
      set("query_pre_attn_scalar", given > 0
                                       ? 1 / (given * given)
                                       : gemma_attention_scalar(integer("num_hidden_layers"), integer("hidden_size"),
                                                                integer("num_attention_heads"), integer("head_dim")));
    }
    if (has("kv_lora_rank")) adjust_latent();
    if (arch_ == "gemma3n" || arch_ == "gemma4") adjust_by_layer();
    // Its files say "parallel" even where it is not; the norm tells.
    if (arch_ == "stablelm") set("use_parallel_residual", !there("blk.0.ffn_norm.weight"));
    // Its files say nothing of norms that have no weights: the model of 128 experts has none.
    if (arch_ == "llama4") set("use_qk_norm", integer("num_experts") != 128);
    if (arch_ == "modern-bert") {
      set("global_rope_theta", values_["rope_theta"]);
      if (has("rope_local_base_freq")) set("local_rope_theta", values_["rope_local_base_freq"]);
      values_.erase("rope_theta");
    }
    if ((arch_ == "gemma3" || arch_ == "gemma-embedding") && !has("rope_local_base_freq"))
      set("rope_local_base_freq", 10000.0);
    if (arch_ == "olmo2" && !has("rope_local_base_freq")) set("rope_local_base_freq", values_["rope_theta"]);
  }

  // Heads as latent attention has them. Files with key_length_mla keep what is absorbed, and key_length is of the
  // latent.
  void adjust_latent() {
    const bool absorbed = has("key_length_mla");
    const int64_t turning = integer("rotary_dims"), heads = std::max<int64_t>(1, integer("num_attention_heads"));
    const int64_t key = integer(absorbed ? "key_length_mla" : "head_dim");
    int64_t value = integer(absorbed ? "value_length_mla" : "value_length");
    if (value == 0) value = integer("hidden_size") / heads;
    if (!has("q_lora_rank")) values_["q_lora_rank"] = nullptr;
    set("qk_rope_head_dim", turning);
    set("qk_nope_head_dim", key - turning);
    set("v_head_dim", value);
    values_.erase("head_dim");
    set("head_dim", key);
  }

  // What a file says by layer and a configuration by type of layer.
  void adjust_by_layer() {
    const bool four = arch_ == "gemma4";
    const Json* types = find(values_, "layer_types");
    auto is_full = [&](size_t i) {
      const auto* list = types != nullptr ? types->if_array() : nullptr;
      return list != nullptr && i < list->size() && (*list)[i] == "full_attention";
    };
    auto first_of = [&](const JsonArray& list, bool full) {
      for (size_t i = 0; i < list.size(); ++i)
        if (is_full(i) == full) return list[i];
      return list.empty() ? Json(0) : list[0];
    };
    if (const Json* heads = find(values_, "num_key_value_heads"); heads != nullptr && heads->is_array()) {
      const JsonArray list = heads->get_array();
      set("num_global_key_value_heads", first_of(list, true), names_["num_key_value_heads"]);
      set("num_key_value_heads", first_of(list, false), names_["num_key_value_heads"]);
    }
    if (const Json* widths = find(values_, "intermediate_size"); four && widths != nullptr && widths->is_array()) {
      set("use_double_wide_mlp", true);
      set("intermediate_size", widths->get_array().empty() ? Json(0) : Json(widths->get_array()[0]));
    }
    if (has("head_dim_swa")) {
      set("global_head_dim", values_["head_dim"]);
      set("head_dim", values_["head_dim_swa"]);
    }
    for (size_t i = 0; four && i < static_cast<size_t>(std::clamp<int64_t>(integer("num_hidden_layers"), 0, 4096));
         ++i) {
      const bool keys = there(fmt::format("blk.{}.attn_k.weight", i)),
                 values = there(fmt::format("blk.{}.attn_v.weight", i));
      if (is_full(i) && keys && !values) set("attention_k_eq_v", true);
    }
    if (!four && !has("rope_local_base_freq")) set("rope_local_base_freq", 10000.0);
    if (!has("hidden_size_per_layer_input")) set("hidden_size_per_layer_input", 0);
    adjust_sparsity();
    if (four) adjust_two_ropes();
  }

  // Minus infinity says that nothing is left out, and one number that all layers have it.
  void adjust_sparsity() {
    const Json* given = find(values_, "activation_sparsity_scale");
    if (given == nullptr) return;
    const auto layers = static_cast<size_t>(std::clamp<int64_t>(integer("num_hidden_layers"), 0, 4096));
    JsonArray list = given->is_array() ? given->get_array() : JsonArray(layers, *given);
    for (Json& each : list) {
      if (each.is_double() && each.get_double() < -1e30) each = 0.0;
    }
    set("activation_sparsity_scale", std::move(list), names_["activation_sparsity_scale"]);
  }

  // Rotary factors are of the layers that see everything, the second base of the others.
  void adjust_two_ropes() {
    values_.erase("rotary_dims");
    JsonObject full, local;
    if (const Json* scaling = find(values_, "rope_scaling"); scaling != nullptr && scaling->is_object())
      full = scaling->get_object();
    full["rope_theta"] = values_["rope_theta"];
    local["rope_theta"] = has("rope_local_base_freq") ? values_["rope_local_base_freq"] : Json(10000.0);
    if (!full.contains("rope_type")) full["rope_type"] = "default";
    JsonObject both;
    both["full_attention"] = std::move(full);
    both["sliding_attention"] = std::move(local);
    values_.erase("rope_scaling");
    set("rope_parameters", std::move(both));
  }

  const Checkpoint& file_;
  std::string arch_;
  JsonObject values_;
  std::map<std::string, std::string, std::less<>> names_;
};

}  // namespace

std::span<const GgufKey> gguf_keys() { return kKeys; }

double gemma_attention_scalar(int64_t layers, int64_t width, int64_t heads, int64_t head_dim) {
  const bool by_width = (layers == 46 || layers == 62) && heads > 0;
  return static_cast<double>(by_width ? width / heads : head_dim);
}

Result<Config> config_from_gguf(const Checkpoint& checkpoint) {
  const std::string file = checkpoint.path().filename().string();
  auto arch = checkpoint.metadata().get_string("general.architecture", "");
  if (!arch.ok()) return within(file, std::move(arch).error());
  if (arch->empty()) return error(Code::invalid, "{}: the key 'general.architecture' is missing", file);
  auto config = Reader(checkpoint, *arch).read();
  if (!config.ok()) return within(file, std::move(config).error());
  return config;
}

}  // namespace millrace
