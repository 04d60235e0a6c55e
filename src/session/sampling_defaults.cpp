#include "session/sampling_defaults.h"

#include <algorithm>
#include <cmath>

#include "session/added_sampling.h"

namespace millrace {
namespace {

constexpr double kMany = 1 << 30;

constexpr SamplingValue kValues[] = {
    {"temperature", "temp", "temperature", 0, 100, &Sampling::temperature, nullptr},
    {"top_k", "top_k", "top_k", 0, kMany, nullptr, &Sampling::top_k},
    {"top_p", "top_p", "top_p", 1e-9, 1, &Sampling::top_p, nullptr},
    {"min_p", "min_p", "min_p", 0, 1, &Sampling::min_p, nullptr},
    {"typical_p", "typical_p", "typical_p", 1e-9, 1, &Sampling::typical, nullptr},
    {"top_n_sigma", "", "", 0, 100, &Sampling::top_n_sigma, nullptr},
    {"xtc_probability", "xtc_probability", "", 0, 1, &Sampling::xtc_probability, nullptr},
    {"xtc_threshold", "xtc_threshold", "", 0, 1, &Sampling::xtc_threshold, nullptr},
    {"repetition_penalty", "penalty_repeat", "repetition_penalty", 0.01, 100, &Sampling::repetition, nullptr},
    {"presence_penalty", "", "", -100, 100, &Sampling::presence, nullptr},
    {"frequency_penalty", "", "", -100, 100, &Sampling::frequency, nullptr},
    {"repeat_last_n", "penalty_last_n", "", -1, kMany, nullptr, &Sampling::penalty_window},
    {"dry_multiplier", "", "", 0, 100, &Sampling::dry_multiplier, nullptr},
    {"dry_base", "", "", 1, 100, &Sampling::dry_base, nullptr},
    {"dry_allowed_length", "", "", 1, kMany, nullptr, &Sampling::dry_allowed_length},
    {"dry_penalty_last_n", "", "", -1, kMany, nullptr, &Sampling::dry_window},
    {"mirostat", "mirostat", "", 0, 2, nullptr, &Sampling::mirostat},
    {"mirostat_tau", "mirostat_tau", "", 0.01, 100, &Sampling::mirostat_tau, nullptr},
    {"mirostat_eta", "mirostat_eta", "", 0.0001, 1, &Sampling::mirostat_eta, nullptr},
};

double value_of(const Sampling& sampling, const SamplingValue& value) {
  return value.number != nullptr ? sampling.*value.number : sampling.*value.integer;
}

// What the files say about a value; an error if it is no number, nothing if they are silent.
Result<std::optional<double>> stored(const Checkpoint& checkpoint, const SamplingValue& value) {
  const std::string key = fmt::format("general.sampling.{}", value.gguf);
  if (!value.gguf.empty() && checkpoint.metadata().find(key) != nullptr) {
    TRY(double number, checkpoint.metadata().get_number(key, 0));
    // A float32 of the file as the decimal it was written from.
    return std::optional(std::stod(fmt::format("{}", static_cast<float>(number))));
  }
  if (value.file.empty() || find(checkpoint.generation_config(), value.file) == nullptr) return std::optional<double>();
  TRY(double number, get_number(checkpoint.generation_config(), value.file, 0));
  return std::optional(number);
}

// A number the makers gave, if it can be one.
void use_value(SamplingDefaults& defaults, const SamplingValue& value, double number) {
  const bool whole = value.number != nullptr || number == std::floor(number);
  const bool built = value.integer != &Sampling::mirostat || number != 1;
  if (!(number >= value.least && number <= value.most) || !whole || !built) {
    defaults.ignored.push_back(fmt::format("{} of the model is not used: it is {}, which must be {}between {} and {}",
                                           value.name, number, value.number == nullptr ? "a whole number " : "",
                                           value.least, value.most));
    return;
  }
  if (value.number != nullptr) {
    defaults.sampling.*value.number = number;
  } else {
    defaults.sampling.*value.integer = static_cast<int32_t>(number);
  }
  if (std::find(defaults.of_model.begin(), defaults.of_model.end(), value.name) == defaults.of_model.end())
    defaults.of_model.emplace_back(value.name);
}

}  // namespace

std::span<const SamplingValue> sampling_values() { return kValues; }

SamplingDefaults::SamplingDefaults() : dry_breakers{"\n", ":", "\"", "*"} {
  sampling.temperature = 0.8;
  sampling.top_k = 40;
  sampling.top_p = 0.95;
  sampling.min_p = 0.05;
  sampling.penalty_window = -1;
}

SamplingDefaults sampling_defaults(const Checkpoint& checkpoint) {
  SamplingDefaults defaults;
  for (const SamplingValue& value : kValues) {
    auto found = stored(checkpoint, value);
    if (!found.ok()) {
      defaults.ignored.push_back(fmt::format("{} of the model is not used: {}", value.name, found.error().message));
      continue;
    }
    if (!found->has_value()) continue;
    use_value(defaults, value, **found);
  }
  return defaults;
}

void add_sampling(SamplingDefaults& defaults, const Json& values) {
  for (const SamplingValue& value : kValues) {
    std::string key(value.name);
    if (find(values, key) == nullptr && key == "repetition_penalty") key = "repeat_penalty";
    if (find(values, key) == nullptr) continue;
    const auto number = get_number(values, key, 0);
    if (number.ok()) {
      use_value(defaults, value, *number);
    } else {
      defaults.ignored.push_back(fmt::format("{} of the model is not used: {}", value.name, number.error().message));
    }
  }
}

Result<void> put_sampling(GgufWriter& writer, const Checkpoint& checkpoint) {
  const SamplingDefaults defaults = sampling_defaults(checkpoint);
  for (const SamplingValue& value : kValues) {
    const bool said =
        std::find(defaults.of_model.begin(), defaults.of_model.end(), value.name) != defaults.of_model.end();
    if (!said) continue;
    CHECK(!value.gguf.empty(), "whatever files can say has a key");
    const std::string key = fmt::format("general.sampling.{}", value.gguf);
    TRY_VOID(value.number != nullptr ? writer.put(key, static_cast<float>(defaults.sampling.*value.number))
                                     : writer.put(key, defaults.sampling.*value.integer));
  }
  return {};
}

void suit_filling(SamplingDefaults& defaults) {
  defaults.sampling = Sampling();
  defaults.sampling.temperature = 0;
  defaults.of_model.clear();
  defaults.ignored.clear();
}

JsonObject sampling_json(const SamplingDefaults& defaults) {
  JsonObject json;
  for (const SamplingValue& value : kValues) {
    if (value.number != nullptr) {
      json[value.name] = defaults.sampling.*value.number;
    } else {
      json[value.name] = defaults.sampling.*value.integer;
    }
  }
  JsonArray breakers;
  for (const std::string& text : defaults.dry_breakers) breakers.emplace_back(text);
  json["dry_sequence_breakers"] = std::move(breakers);
  return json;
}

std::string sampling_text(const SamplingDefaults& defaults) {
  const Sampling neutral;
  std::string text;
  for (const SamplingValue& value : kValues) {
    const bool of_model =
        std::find(defaults.of_model.begin(), defaults.of_model.end(), value.name) != defaults.of_model.end();
    const bool window = value.integer == &Sampling::penalty_window;  // of interest only with a penalty
    const double number = value_of(defaults.sampling, value);
    if (value.name != "temperature" && !of_model && (window || number == value_of(neutral, value))) continue;
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}{}", value.name, number, of_model ? " (the model's)" : "");
  }
  return text;
}

}  // namespace millrace
