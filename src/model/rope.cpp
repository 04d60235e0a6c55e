#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace millrace {
namespace {

// The rope settings that count: those of the layer's type where there are such, else the old generation's scaling, else
// the new generation's one set for all.
struct Settings {
  Config values;
  bool none = false;  // set to null for this type of layer
};

Settings settings_of(const Config& config, const RopeChoice& choice) {
  Config parameters = config.object("rope_parameters");
  const std::string_view type = choice.layer_type.empty() ? "full_attention" : choice.layer_type;
  if (parameters.is_null(type)) return {std::move(parameters), true};
  if (parameters.has(type)) return {parameters.object(type)};
  if (!choice.scaled) return {config.object("")};
  Config scaling = config.object("rope_scaling");
  return {scaling.values().empty() ? std::move(parameters) : std::move(scaling)};
}

class Frequencies {
 public:
  Frequencies(Config& config, Config& rope, int32_t dims, double theta, int32_t head_dim)
      : config_(config), rope_(rope), head_dim_(head_dim), trained_(config.count("max_position_embeddings", 2048)) {
    out_.dims = dims;
    out_.origin.theta = theta;
    out_.frequencies = rotary_powers(theta, dims);
  }

  RopeSpec compute(std::string_view type) {
    if (type == "linear")
      linear();
    else if (type == "dynamic")
      dynamic();
    else if (type == "yarn")
      yarn();
    else if (type == "longrope" || type == "su")
      longrope();
    else if (type == "llama3")
      llama3();
    else if (type == "factors")
      factors();
    else if (type == "proportional")
      proportional();
    else if (type != "default") {
      rope_.fail(error(Code::unsupported,
                       "rope type '{}' is not supported: expected default, linear, dynamic, yarn, longrope, "
                       "llama3 or proportional",
                       type));
    }
    return std::move(out_);
  }

 private:
  double required(std::string_view key) {
    if (!rope_.has(key)) rope_.fail(error(Code::invalid, "'{}' is missing", rope_.name_of(key)));
    return rope_.positive(key, 1);
  }

  void divide(std::string_view type, const std::vector<float>& factors) {
    out_.origin.type = type;
    constexpr float kStill = 1e30f;  // a quotient that stands for no rotation
    for (size_t i = 0; i < factors.size(); ++i)
      out_.frequencies[i] = factors[i] >= kStill ? 0 : out_.frequencies[i] / factors[i];
  }

  // What a GGUF file has instead of settings: the quotients themselves.
  void factors() {
    out_.magnitude = static_cast<float>(rope_.number("attention_factor", 1));
    divide("factors", rope_.numbers("factors", out_.frequencies.size()));
  }

  // A part of the head turns, with the frequencies it would have if all of it did.
  void proportional() {
    out_.origin.type = "proportional";
    const double part = rope_.positive("partial_rotary_factor", 1);
    const auto turning = static_cast<size_t>(std::min(part, 1.0) * out_.dims / 2);
    for (size_t i = turning; i < out_.frequencies.size(); ++i) out_.frequencies[i] = 0;
  }

  void linear() {
    out_.origin.factor = required("factor");
    divide("linear", std::vector<float>(out_.frequencies.size(), static_cast<float>(out_.origin.factor)));
  }

  // The base grows with the length beyond what the model was trained for; here with the longest length wanted.
  void dynamic() {
    double grown = 0;
    if (rope_.has("alpha")) {  // HunYuan's form, whatever the length
      grown = std::pow(rope_.positive("alpha", 1), static_cast<double>(head_dim_) / std::max(1, head_dim_ - 2));
    } else {
      const double factor = required("factor"),
                   length = std::max(trained_, static_cast<double>(config_.wanted_context()));
      grown = std::pow(factor * length / trained_ - (factor - 1),
                       static_cast<double>(out_.dims) / std::max(1, out_.dims - 2));
    }
    out_.origin.theta *= grown;
    out_.frequencies = rotary_powers(out_.origin.theta, out_.dims);
  }

  double original_length() {
    const auto trained = static_cast<int64_t>(trained_);
    out_.origin.original_context = config_.has("original_max_position_embeddings")
                                       ? config_.count("original_max_position_embeddings", trained)
                                       : rope_.count("original_max_position_embeddings", trained);
    return out_.origin.original_context;
  }

  void yarn() {
    RopeOrigin& origin = out_.origin;
    origin.type = "yarn";
    const double original = original_length();
    origin.factor = rope_.positive("factor", trained_ / original);
    origin.beta_fast = rope_.positive("beta_fast", 32);
    origin.beta_slow = rope_.positive("beta_slow", 1);
    origin.truncate = rope_.flag("truncate", true);
    const double all = rope_.number("mscale_all_dim", 0), one = rope_.number("mscale", 0);
    const double usual = all != 0 && one != 0 ? yarn_magnitude(origin.factor, one) / yarn_magnitude(origin.factor, all)
                                              : yarn_magnitude(origin.factor, 1);
    out_.magnitude = static_cast<float>(rope_.number("attention_factor", usual));
    origin.mscale_all = all;

    // Dimensions that turn often keep their frequency, those that turn seldom are interpolated, with a ramp between.
    auto dimension = [&](double rotations) {
      return out_.dims * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(origin.theta));
    };
    double low = dimension(origin.beta_fast), high = dimension(origin.beta_slow);
    if (origin.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, static_cast<double>(out_.dims - 1));
    if (low == high) high += 0.001;
    for (size_t i = 0; i < out_.frequencies.size(); ++i) {
      const auto ramp = static_cast<float>(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
      float& frequency = out_.frequencies[i];
      frequency = frequency / static_cast<float>(origin.factor) * ramp + frequency * (1 - ramp);
    }
  }

  void longrope() {
    RopeOrigin& origin = out_.origin;
    const double original = original_length();
    origin.factor = rope_.positive("factor", trained_ / original);
    origin.long_factors = rope_.numbers("long_factor", out_.frequencies.size());
    origin.short_factors = rope_.numbers("short_factor", out_.frequencies.size());
    if (origin.long_factors.empty() || origin.short_factors.empty()) {
      rope_.fail(error(Code::invalid, "rope type longrope needs short_factor and long_factor, {} numbers each",
                       out_.frequencies.size()));
    }
    const double usual =
        origin.factor <= 1 || original <= 1 ? 1 : std::sqrt(1 + std::log(origin.factor) / std::log(original));
    out_.magnitude = static_cast<float>(rope_.number("attention_factor", usual));
    const double length = config_.wanted_context() > 0 ? static_cast<double>(config_.wanted_context()) : trained_;
    divide("longrope", length > original ? origin.long_factors : origin.short_factors);
  }

  void llama3() {
    out_.origin.type = "llama3";
    const double factor = out_.origin.factor = required("factor"), original = original_length();
    const double low = required("low_freq_factor"), high = required("high_freq_factor");
    for (float& frequency : out_.frequencies) {
      const double plain = frequency, length = 2 * std::numbers::pi / plain;
      if (length < original / high) continue;
      const double smooth = high == low ? 0 : (original / length - low) / (high - low);
      frequency =
          static_cast<float>(length > original / low ? plain / factor : (1 - smooth) * plain / factor + smooth * plain);
    }
  }

  Config& config_;
  Config& rope_;
  int32_t head_dim_;
  double trained_;
  RopeSpec out_;
};

int32_t dims_of(Config& config, Config& rope, const RopeChoice& choice) {
  if (config.has("rotary_dims")) return config.count("rotary_dims", choice.head_dim);
  if (rope.text("rope_type", "default") == "proportional") return choice.head_dim;
  const double partial = config.has("partial_rotary_factor") ? config.positive("partial_rotary_factor", 1)
                                                             : rope.positive("partial_rotary_factor", choice.partial);
  if (partial != 1 && !choice.partial_allowed) {
    config.fail(
        error(Code::unsupported, "'partial_rotary_factor' is {}, but heads of this architecture turn whole", partial));
  }
  if (partial > 1) config.fail(error(Code::invalid, "'partial_rotary_factor' is {}: expected a part of 1", partial));
  return static_cast<int32_t>(static_cast<double>(choice.head_dim) * std::min(partial, 1.0));
}

}  // namespace

std::vector<float> rotary_powers(double theta, int32_t dims) {
  std::vector<float> out(static_cast<size_t>(dims / 2));
  for (size_t i = 0; i < out.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dims);
    out[i] = 1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
  }
  return out;
}

double yarn_magnitude(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

int32_t add_rope(Config& config, ModelSpec& spec, const RopeChoice& choice) {
  Settings settings = settings_of(config, choice);
  if (settings.none) return -1;
  Config& rope = settings.values;
  const double theta = rope.positive("rope_theta", config.positive(choice.theta_key, choice.theta));
  const int32_t dims = dims_of(config, rope, choice);
  if (dims < 2 || dims % 2 != 0) {
    config.fail(error(Code::invalid,
                      "rotary embedding would turn {} of {} dimensions of a head: expected an even number of 2 or more",
                      dims, choice.head_dim));
    return -1;
  }
  if (theta <= 1) config.fail(error(Code::invalid, "the rotary base is {}: expected a number above 1", theta));
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  RopeSpec made = Frequencies(config, rope, dims, theta, choice.head_dim).compute(type);
  made.neighbours = choice.neighbours;
  const auto found = std::find(spec.ropes.begin(), spec.ropes.end(), made);
  if (found != spec.ropes.end()) return static_cast<int32_t>(found - spec.ropes.begin());
  spec.ropes.push_back(std::move(made));
  return static_cast<int32_t>(spec.ropes.size()) - 1;
}

}  // namespace millrace
