#include "model/config.h"

#include <array>
#include <cmath>

#include "tensor/hugging_face.h"

namespace millrace {
namespace {

struct Alias {
  std::string_view name, meaning;
};

// Other names of the same thing; the name on the right wins where both are there.
constexpr auto kAliases = std::to_array<Alias>({
    {"n_embd", "hidden_size"},
    {"n_embed", "hidden_size"},
    {"n_layer", "num_hidden_layers"},
    {"num_layers", "num_hidden_layers"},
    {"n_head", "num_attention_heads"},
    {"n_head_kv", "num_key_value_heads"},
    {"num_kv_heads", "num_key_value_heads"},
    {"n_positions", "max_position_embeddings"},
    {"n_ctx", "max_position_embeddings"},
    {"seq_length", "max_position_embeddings"},
    {"n_inner", "intermediate_size"},
    {"ffn_dim", "intermediate_size"},
    {"ffn_hidden_size", "intermediate_size"},
    {"rotary_pct", "partial_rotary_factor"},
    {"rope_pct", "partial_rotary_factor"},
    {"rotary_emb_base", "rope_theta"},
    {"activation_function", "hidden_act"},
    {"activation", "hidden_act"},
    {"torch_dtype", "dtype"},
});

std::string shown(const Json& value) {
  std::string text = to_text(value);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_uint64() && value.get_uint64() <= uint64_t{INT64_MAX}) return static_cast<int64_t>(value.get_uint64());
  if (value.is_double() && std::floor(value.get_double()) == value.get_double() &&
      std::abs(value.get_double()) < 1e15) {
    return static_cast<int64_t>(value.get_double());
  }
  return std::nullopt;
}

std::optional<double> as_number(const Json& value) {
  if (value.is_double()) return value.get_double();
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  return std::nullopt;
}

// Weights that are numbers only together with something else kept beside them, in a way that is not undone here.
Result<void> refuse_quantised(std::string_view origin, const Json& config) {
  const auto refused = refused_quantisation(config);
  if (!refused) return {};
  return error(Code::unsupported, "{}: {}", origin, *refused);
}

}  // namespace

Config::Config(std::string origin, JsonObject values, std::map<std::string, std::string, std::less<>> names)
    : origin_(std::move(origin)), values_(std::move(values)), names_(std::move(names)) {}

Result<Config> Config::from_json(std::string origin, const Json& config) {
  if (!config.is_object()) return error(Code::invalid, "{}: expected an object with the model's settings", origin);
  JsonObject values = config.get_object();
  TRY_VOID(refuse_quantised(origin, config));
  // A model that also sees or hears keeps its language part in text_config.
  if (const Json* text = millrace::find(values, "text_config"); text != nullptr && text->is_object()) {
    JsonObject inner = text->get_object();
    for (std::string_view key :
         {"tie_word_embeddings", "torch_dtype", "dtype", "is_causal", "use_bidirectional_attention"}) {
      if (!inner.contains(key) && values.contains(key)) inner[key] = values[key];
    }
    values = std::move(inner);
  }
  std::map<std::string, std::string, std::less<>> names;
  for (const Alias& alias : kAliases) {
    const auto found = values.find(alias.name);
    if (found == values.end() || found->value().is_null()) continue;
    if (const Json* there = values.if_contains(alias.meaning); there != nullptr && !there->is_null()) continue;
    Json value = found->value();
    values[alias.meaning] = std::move(value);
    names.emplace(alias.meaning, alias.name);
  }
  return Config(std::move(origin), std::move(values), std::move(names));
}

std::string Config::model_type() const {
  const Json* found = find("model_type");
  return found != nullptr && found->is_string() ? std::string(found->get_string()) : std::string();
}

const Json* Config::find(std::string_view key) const { return millrace::find(values_, key); }
bool Config::has(std::string_view key) const { return find(key) != nullptr; }

bool Config::is_null(std::string_view key) const {
  const Json* found = values_.if_contains(key);
  return found != nullptr && found->is_null();
}

std::string Config::name_of(std::string_view key) const {
  const auto named = names_.find(key);
  return path_ + (named != names_.end() ? named->second : std::string(key));
}

void Config::fail(Error error) {
  if (!*error_) *error_ = within(origin_, std::move(error));
}

void Config::wrong(std::string_view key, std::string_view expected) {
  fail(error(Code::invalid, "'{}' should be {}, but is {}", name_of(key), expected, shown(*find(key))));
}

void Config::refuse(std::string_view key, std::string_view why) {
  const Json* found = find(key);
  fail(error(Code::unsupported, "'{}' is {}, which is not supported: {}", name_of(key),
             found ? shown(*found) : "not set", why));
}

Result<void> Config::status() const {
  if (*error_) return **error_;
  return {};
}

int32_t Config::count(std::string_view key, int64_t otherwise) {
  const Json* found = find(key);
  if (found == nullptr) return static_cast<int32_t>(otherwise);
  const auto value = as_integer(*found);
  if (value && *value >= 1 && *value <= INT32_MAX) return static_cast<int32_t>(*value);
  wrong(key, "a whole number above 0");
  return 1;
}

int32_t Config::count_or_none(std::string_view key, int64_t if_absent) {
  if (is_null(key)) return 0;
  const Json* found = find(key);
  if (found == nullptr) return static_cast<int32_t>(if_absent);
  const auto value = as_integer(*found);
  if (value && *value >= 0 && *value <= INT32_MAX) return static_cast<int32_t>(*value);
  wrong(key, "a whole number, or null for none");
  return 0;
}

double Config::number(std::string_view key, double otherwise) {
  const Json* found = find(key);
  if (found == nullptr) return otherwise;
  const auto value = as_number(*found);
  if (value && std::isfinite(*value)) return *value;
  wrong(key, "a number");
  return 1;
}

double Config::positive(std::string_view key, double otherwise) {
  const double value = number(key, otherwise);
  if (value > 0) return value;
  if (has(key)) wrong(key, "a number above 0");
  return 1;
}

double Config::number_or_none(std::string_view key, double if_absent) {
  return is_null(key) ? 0 : number(key, if_absent);
}

bool Config::flag(std::string_view key, bool otherwise) {
  const Json* found = find(key);
  if (found == nullptr) return otherwise;
  if (found->is_bool()) return found->get_bool();
  wrong(key, "true or false");
  return otherwise;
}

std::string Config::text(std::string_view key, std::string_view otherwise) {
  const Json* found = find(key);
  if (found == nullptr) return std::string(otherwise);
  if (found->is_string()) return std::string(found->get_string());
  wrong(key, "a text");
  return std::string(otherwise);
}

std::vector<std::string> Config::texts(std::string_view key, size_t size) {
  const Json* found = find(key);
  if (found == nullptr) return {};
  std::vector<std::string> out;
  if (const auto* array = found->if_array()) {
    for (const Json& item : *array) {
      if (item.is_string()) out.emplace_back(item.get_string());
    }
    if (out.size() == array->size() && (size == 0 || out.size() == size)) return out;
  }
  wrong(key, size == 0 ? "a list of texts" : fmt::format("a list of {} texts", size));
  return {};
}

std::vector<int64_t> Config::integers(std::string_view key, size_t size) {
  const Json* found = find(key);
  if (found == nullptr) return {};
  std::vector<int64_t> out;
  if (const auto* array = found->if_array()) {
    for (const Json& item : *array) {
      if (item.is_bool()) out.push_back(item.get_bool() ? 1 : 0);
      if (const auto value = as_integer(item)) out.push_back(*value);
    }
    if (out.size() == array->size() && (size == 0 || out.size() == size)) return out;
  }
  wrong(key, size == 0 ? "a list of whole numbers" : fmt::format("a list of {} whole numbers", size));
  return {};
}

std::vector<float> Config::numbers(std::string_view key, size_t size) {
  const Json* found = find(key);
  if (found == nullptr) return {};
  std::vector<float> out;
  if (const auto* array = found->if_array()) {
    for (const Json& item : *array) {
      if (const auto value = as_number(item); value && std::isfinite(*value)) out.push_back(static_cast<float>(*value));
    }
    if (out.size() == array->size() && (size == 0 || out.size() == size)) return out;
  }
  wrong(key, size == 0 ? "a list of numbers" : fmt::format("a list of {} numbers", size));
  return {};
}

Config Config::object(std::string_view key) const {
  Config inner = *this;
  inner.values_ = {};
  inner.names_.clear();
  inner.path_ = path_ + std::string(key) + ".";
  const Json* found = find(key);
  if (found == nullptr) return inner;
  if (found->is_object()) {
    inner.values_ = found->get_object();
  } else {
    inner.fail(error(Code::invalid, "'{}' should be an object, but is {}", name_of(key), shown(*found)));
  }
  return inner;
}

}  // namespace millrace
