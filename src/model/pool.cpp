#include "model/pool.h"

#include <charconv>
#include <iterator>

namespace millrace {
namespace {

struct PoolingName {
  std::string_view name;     // as people say it
  std::string_view setting;  // in 1_Pooling/config.json
  Pooling meaning;
};

constexpr PoolingName kPoolings[] = {
    {"cls", "pooling_mode_cls_token", Pooling::first},
    {"mean", "pooling_mode_mean_tokens", Pooling::mean},
    {"max", "pooling_mode_max_tokens", Pooling::most},
    {"mean_sqrt_len", "pooling_mode_mean_sqrt_len_tokens", Pooling::mean_root},
    {"weightedmean", "pooling_mode_weightedmean_tokens", Pooling::mean_weighted},
    {"last", "pooling_mode_lasttoken", Pooling::last},
};

Result<void> read_pooling(const Json& config, PoolSpec& pool) {
  int found = 0;
  TRY(const std::string mode, get_string(config, "pooling_mode", ""));
  if (!mode.empty()) {
    TRY(pool.pooling, pooling_from_name(mode == "lasttoken" ? "last" : mode));
    return {};
  }
  for (const PoolingName& each : kPoolings) {
    const Json* flag = find(config, each.setting);
    if (flag == nullptr || !flag->is_bool() || !flag->get_bool()) continue;
    pool.pooling = each.meaning;
    ++found;
  }
  if (found == 1) return {};
  return error(Code::unsupported, "names {} ways of pooling at once; exactly one is supported", found);
}

Result<void> read_dense(const Json& config, const std::string& path, PoolSpec& pool) {
  ProjectionSpec made;
  TRY(const int64_t outputs, get_int(config, "out_features", 0));
  if (outputs < 1 || outputs > INT32_MAX) return error(Code::invalid, "has {} out_features", outputs);
  made.outputs = static_cast<int32_t>(outputs);
  if (const Json* bias = find(config, "bias"); bias != nullptr && bias->is_bool()) made.bias = bias->get_bool();
  TRY(std::string name, get_string(config, "activation_function", "torch.nn.modules.activation.Tanh"));
  if (const size_t dot = name.rfind('.'); dot != std::string::npos) name.erase(0, dot + 1);
  if (name == "Tanh") {
    made.tanh = true;
  } else if (name == "GELU") {
    made.activation = Activation::gelu;
  } else if (name == "ReLU") {
    made.activation = Activation::relu;
  } else if (name == "SiLU") {
    made.activation = Activation::silu;
  } else if (name != "Identity") {
    return error(Code::unsupported, "has the activation '{}'; Tanh, GELU, ReLU, SiLU and Identity are supported", name);
  }
  made.file = path + ".linear";
  pool.projections.push_back(std::move(made));
  return {};
}

Result<void> read_module(const Json& module, bool first, PoolSpec& pool) {
  TRY(std::string type, get_string(module, "type", ""));
  TRY(const std::string path, get_string(module, "path", ""));
  if (const size_t dot = type.rfind('.'); dot != std::string::npos) type.erase(0, dot + 1);
  const Json* config = find(module, "config");
  const Json none = JsonObject{};
  Result<void> read;
  if (type == "Transformer" && first) return {};
  if (type == "Pooling") {
    read = read_pooling(config != nullptr ? *config : none, pool);
  } else if (type == "Dense") {
    read = read_dense(config != nullptr ? *config : none, path, pool);
  } else if (type == "Normalize") {
    pool.normalised = true;
  } else {
    read = error(Code::unsupported, "has the type '{}'; Transformer, Pooling, Dense and Normalize are supported", type);
  }
  if (!read.ok()) return within(fmt::format("modules.json: '{}'", path), std::move(read).error());
  return {};
}

constexpr Pooling kByNumber[] = {Pooling::mean, Pooling::mean, Pooling::first, Pooling::last};

// GGUF says by numbers how rows become one, and by tensors what comes after.
Result<void> read_gguf(const Checkpoint& checkpoint, Config& config, ModelSpec& spec) {
  const int32_t number = config.count_or_none("pooling_type", 0);
  const bool normalised = config.flag("normalised_vectors", true);
  TRY_VOID(config.status());
  if (spec.pool && spec.pool->scores) return {};
  if (number >= 1 && number <= 3) {
    if (!spec.pool) spec.pool = PoolSpec{};
    spec.pool->pooling = kByNumber[number];
  } else if (number > 4) {
    return error(Code::unsupported, "pooling type {} is not one of 0 to 4", number);
  }
  if (!normalised) {
    if (!spec.pool) spec.pool = PoolSpec{};
    spec.pool->normalised = false;
  }
  for (std::string_view stem : {"dense_2", "dense_3"}) {
    const StoredTensor* tensor = checkpoint.find(fmt::format("{}.weight", stem));
    if (tensor == nullptr || tensor->shape.size() != 2) continue;
    if (!spec.pool) spec.pool = PoolSpec{};
    spec.pool->projections.push_back({.outputs = static_cast<int32_t>(std::min<int64_t>(tensor->shape[0], INT32_MAX)),
                                      .bias = false,
                                      .file = std::string(stem)});
  }
  return {};
}

}  // namespace

Result<Pooling> pooling_from_name(std::string_view name) {
  for (const PoolingName& each : kPoolings)
    if (each.name == name) return each.meaning;
  return error(Code::invalid, "'{}' is no way of pooling: expected cls, mean, last, max, mean_sqrt_len or weightedmean",
               name);
}

int32_t pooling_number(Pooling pooling) {
  for (int32_t number = 1; number < static_cast<int32_t>(std::size(kByNumber)); ++number)
    if (kByNumber[number] == pooling) return number;
  return 0;
}

std::string_view pooling_name(Pooling pooling) {
  for (const PoolingName& each : kPoolings)
    if (each.meaning == pooling) return each.name;
  return "";
}

Result<PoolSpec> read_modules(const Json& modules) {
  const auto* list = modules.if_array();
  if (list == nullptr) return error(Code::invalid, "modules.json is no list");
  PoolSpec pool = {.normalised = false};
  for (size_t i = 0; i < list->size(); ++i) TRY_VOID(read_module((*list)[i], i == 0, pool));
  return pool;
}

Result<void> settle_pool(const Checkpoint& checkpoint, Config& config, ModelSpec& spec) {
  if (checkpoint.kind() == Checkpoint::Kind::gguf) return read_gguf(checkpoint, config, spec);
  if (!checkpoint.modules().is_array() || (spec.pool && spec.pool->scores)) return {};
  TRY(spec.pool, read_modules(checkpoint.modules()));
  return check_spec(spec);
}

std::string projection_file(const ModelSpec& spec, std::string_view slot) {
  constexpr std::string_view kStart = "cls.";
  if (!spec.pool || !slot.starts_with(kStart) || slot.ends_with("_norm")) return {};
  size_t index = 0;
  std::from_chars(slot.data() + kStart.size(), slot.data() + slot.size(), index);
  return index < spec.pool->projections.size() ? spec.pool->projections[index].file : std::string();
}

bool is_other_head(std::string_view name) {
  for (std::string_view start : {"bert.", "roberta.", "model."})
    if (name.starts_with(start)) name.remove_prefix(start.size());
  if (name == "embeddings.position_ids") return true;
  for (std::string_view start :
       {"pooler.", "cls.predictions.", "cls.seq_relationship.", "lm_head.", "head.", "decoder."})
    if (name.starts_with(start)) return true;
  return false;
}

}  // namespace millrace
