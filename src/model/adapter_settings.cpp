#include "model/adapter_settings.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace millrace {
namespace {

constexpr std::string_view kMerge =
    "merge the adapter into the model with the tool it was made by, and open the result";

bool is_nothing(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.get_bool();
  if (const auto* list = value.if_array()) return list->empty();
  if (const auto* object = value.if_object()) return object->empty();
  if (const auto* text = value.if_string()) return text->empty();
  return false;
}

// Settings that say how an adapter was trained, or what tensors say anyway.
constexpr std::array<std::string_view, 32> kHarmless = {"peft_type",
                                                        "task_type",
                                                        "base_model_name_or_path",
                                                        "r",
                                                        "lora_alpha",
                                                        "lora_dropout",
                                                        "bias",
                                                        "fan_in_fan_out",
                                                        "inference_mode",
                                                        "init_lora_weights",
                                                        "target_modules",
                                                        "use_rslora",
                                                        "rank_pattern",
                                                        "alpha_pattern",
                                                        "layers_to_transform",
                                                        "layers_pattern",
                                                        "auto_mapping",
                                                        "revision",
                                                        "loftq_config",
                                                        "eva_config",
                                                        "corda_config",
                                                        "lora_ga_config",
                                                        "exclude_modules",
                                                        "megatron_config",
                                                        "megatron_core",
                                                        "peft_version",
                                                        "qalora_group_size",
                                                        "runtime_config",
                                                        "velora_config",
                                                        "ensure_weight_tying",
                                                        "tuning_type",
                                                        "parent_library"};

// What settings of other kinds of adapters are, in words.
std::string what_is(std::string_view key) {
  if (key == "use_dora") return "DoRA (use_dora), which scales whole columns";
  if (key == "modules_to_save") return "whole modules that replace the model's (modules_to_save)";
  if (key == "lora_bias") return "biases of its own (lora_bias)";
  if (key == "layer_replication") return "layers that repeat others (layer_replication)";
  if (key == "target_parameters") return "changes of experts' parameters (target_parameters)";
  if (key == "trainable_token_indices") return "rows of embeddings of its own (trainable_token_indices)";
  if (key == "alora_invocation_tokens") return "an activation by tokens (alora_invocation_tokens)";
  return fmt::format("the setting '{}'", key);
}

// Whether a module's name ends in the pattern, at a dot: PEFT's rule for patterns that are names.
bool fits(std::string_view module, std::string_view pattern) {
  if (!module.ends_with(pattern)) return false;
  return module.size() == pattern.size() || module[module.size() - pattern.size() - 1] == '.';
}

// Patterns may be regular expressions; those that are names, with dots escaped or not, are what people write.
Result<std::string> plain_pattern(std::string_view key, std::string_view pattern) {
  std::string plain;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (i == 0 && pattern[i] == '^') continue;
    if (pattern[i] == '\\' && i + 1 < pattern.size() && pattern[i + 1] == '.') continue;
    const bool word = std::isalnum(static_cast<unsigned char>(pattern[i])) != 0 || pattern[i] == '_' ||
                      pattern[i] == '.' || pattern[i] == '-';
    if (!word)
      return error(Code::unsupported,
                   "adapter_config.json: '{}' has the pattern '{}'; only names of modules or their ends are read there",
                   key, pattern);
    plain += pattern[i];
  }
  return plain;
}

template <class T>
const T* found(const std::vector<std::pair<std::string, T>>& patterns, std::string_view module) {
  for (const auto& [pattern, value] : patterns)
    if (fits(module, pattern)) return &value;
  return nullptr;
}

Result<void> check_alpha(double alpha) {
  if (std::isfinite(alpha) && std::abs(alpha) <= 1e9) return {};
  return error(Code::invalid, "the adapter's alpha is {}", alpha);
}

}  // namespace

Result<void> AdapterSettings::read_patterns(const Json& config) {
  for (const std::string_view key : {"rank_pattern", "alpha_pattern"}) {
    const Json* value = find(config, key);
    if (value == nullptr) continue;
    const JsonObject* object = value->if_object();
    if (object == nullptr) return error(Code::invalid, "adapter_config.json: '{}' is no object", key);
    for (const auto& [pattern, number] : *object) {
      TRY(std::string plain, plain_pattern(key, {pattern.data(), pattern.size()}));
      TRY(const double said, get_number(*value, {pattern.data(), pattern.size()}, 0));
      if (key == "alpha_pattern") {
        TRY_VOID(check_alpha(said));
        alphas_.emplace_back(std::move(plain), said);
      } else if (said >= 1 && said <= 1 << 20 && said == std::floor(said)) {
        ranks_.emplace_back(std::move(plain), static_cast<int64_t>(said));
      } else {
        return error(Code::invalid, "adapter_config.json: '{}' gives '{}' a rank of {}", key, plain, said);
      }
    }
  }
  return {};
}

Result<AdapterSettings> AdapterSettings::from_peft(const Json& config) {
  const JsonObject* object = config.if_object();
  if (object == nullptr) return error(Code::invalid, "adapter_config.json is no object");
  TRY(const std::string kind, get_string(config, "peft_type", ""));
  if (kind != "LORA")
    return error(Code::unsupported,
                 "adapter_config.json: the adapter's peft_type is '{}', and only LORA can be run; {}", kind, kMerge);
  TRY(const std::string bias, get_string(config, "bias", "none"));
  if (bias != "none")
    return error(Code::unsupported, "adapter_config.json: the adapter has biases (bias: '{}'), which are not built; {}",
                 bias, kMerge);
  for (const auto& [key, value] : *object) {
    const std::string_view name(key.data(), key.size());
    if (is_nothing(value) || std::ranges::find(kHarmless, name) != kHarmless.end()) continue;
    return error(Code::unsupported, "adapter_config.json: the adapter has {}, which is not built; {}", what_is(name),
                 kMerge);
  }
  AdapterSettings settings;
  TRY(settings.rank_, get_int(config, "r", 8));
  TRY(settings.alpha_, get_number(config, "lora_alpha", 8));
  TRY(settings.by_root_, get_bool(config, "use_rslora", false));
  if (settings.rank_ < 1) return error(Code::invalid, "adapter_config.json: the adapter's rank is {}", settings.rank_);
  TRY_VOID(check_alpha(settings.alpha_));
  TRY_VOID(settings.read_patterns(config));
  return settings;
}

Result<AdapterSettings> AdapterSettings::from_gguf(const Metadata& metadata, std::string_view architecture) {
  TRY(const std::string type, metadata.get_string("general.type", ""));
  if (type != "adapter")
    return error(Code::invalid, "the file's general.type is '{}': it is no adapter; give it as the model (-m) instead",
                 type);
  TRY(const std::string kind, metadata.get_string("adapter.type", ""));
  if (kind != "lora")
    return error(Code::unsupported, "the adapter's adapter.type is '{}', and only lora can be run", kind);
  TRY(const std::string made_for, metadata.get_string("general.architecture", ""));
  if (made_for != architecture)
    return error(Code::invalid, "the adapter was made for a model of architecture '{}', and this one is '{}'", made_for,
                 architecture);
  for (const MetaEntry& entry : metadata.entries()) {
    if (entry.key.starts_with("adapter.") && entry.key != "adapter.type" && entry.key != "adapter.lora.alpha" &&
        entry.key != "adapter.lora.task_name" && entry.key != "adapter.lora.prompt_prefix")
      return error(Code::unsupported, "the adapter has the setting '{}', which is not built", entry.key);
  }
  AdapterSettings settings;
  TRY(settings.alpha_, metadata.get_number("adapter.lora.alpha", 0));
  TRY_VOID(check_alpha(settings.alpha_));
  settings.bare_ = settings.alpha_ == 0;
  return settings;
}

Result<float> AdapterSettings::scale(std::string_view module, int64_t rank) const {
  if (bare_) return 1.0f;
  const int64_t* own = found(ranks_, module);
  const int64_t said = own != nullptr ? *own : rank_;
  if (said != 0 && said != rank)
    return error(Code::invalid, "adapter_config.json says that '{}' has rank {}, but its tensors have {}", module, said,
                 rank);
  const double* alpha = found(alphas_, module);
  const auto ranks = static_cast<double>(rank);
  return static_cast<float>((alpha != nullptr ? *alpha : alpha_) / (by_root_ ? std::sqrt(ranks) : ranks));
}

}  // namespace millrace
