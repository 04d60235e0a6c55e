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
      : config_(config), rope_(rope), dims_(dims), theta_(theta), head_dim_(head_dim) {}

  RopeSpec compute(std::string_view type) {
    if (type == "default") return plain();
    if (type == "linear") return linear();
    if (type == "dynamic") return dynamic();
    if (type == "yarn") return yarn();
    if (type == "longrope" || type == "su") return longrope();
    if (type == "llama3") return llama3();
    if (type == "factors") return divided(rope_.numbers("factors", size()), 1);
    rope_.fail(error(Code::unsupported,
                     "rope type '{}' is not supported: expected default, linear, dynamic, yarn, longrope or llama3",
                     type));
    return plain();
  }

 private:
  size_t size() const { return static_cast<size_t>(dims_ / 2); }

  // base^(-2i/dims), rounded where a float32 implementation rounds.
  std::vector<float> powers(double base) const {
    std::vector<float> out(size());
    for (size_t i = 0; i < out.size(); ++i) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(dims_);
      out[i] = 1.0f / static_cast<float>(std::pow(base, static_cast<double>(exponent)));
    }
    return out;
  }

  RopeSpec made(std::vector<float> frequencies, double magnitude = 1) const {
    return {.dims = dims_, .magnitude = static_cast<float>(magnitude), .frequencies = std::move(frequencies)};
  }

  RopeSpec plain() const { return made(powers(theta_)); }

  RopeSpec divided(const std::vector<float>& factors, double magnitude) {
    std::vector<float> out = powers(theta_);
    for (size_t i = 0; i < factors.size() && i < out.size(); ++i) out[i] /= factors[i];
    return made(std::move(out), magnitude);
  }

  RopeSpec linear() {
    const auto factor = static_cast<float>(rope_.positive("factor", 1));
    std::vector<float> out = powers(theta_);
    for (float& frequency : out) frequency /= factor;
    return made(std::move(out));
  }

  // The base grows with the length beyond what the model was trained for; here with the longest length wanted.
  RopeSpec dynamic() {
    const double exponent = static_cast<double>(dims_) / std::max(1, dims_ - 2);
    if (rope_.has("alpha")) {  // HunYuan's form, whatever the length
      return made(powers(
          theta_ * std::pow(rope_.positive("alpha", 1), static_cast<double>(head_dim_) / std::max(1, head_dim_ - 2))));
    }
    const double factor = rope_.positive("factor", 1);
    const double trained = config_.count("max_position_embeddings", 2048);
    const double length = std::max(trained, static_cast<double>(config_.wanted_context()));
    return made(powers(theta_ * std::pow(factor * length / trained - (factor - 1), exponent)));
  }

  double original_length() {
    const int32_t trained = config_.count("max_position_embeddings", 2048);
    return config_.has("original_max_position_embeddings") ? config_.count("original_max_position_embeddings", trained)
                                                           : rope_.count("original_max_position_embeddings", trained);
  }

  RopeSpec yarn() {
    const double original = original_length();
    const double factor = rope_.positive("factor", config_.count("max_position_embeddings", 2048) / original);
    auto magnitude_of = [&](double scale) { return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0; };
    const double all = rope_.number("mscale_all_dim", 0), one = rope_.number("mscale", 0);
    const double usual = all != 0 && one != 0 ? magnitude_of(one) / magnitude_of(all) : magnitude_of(1);
    const double magnitude = rope_.number("attention_factor", usual);

    // Dimensions that turn often keep their frequency, those that turn seldom are interpolated, with a ramp between.
    auto dimension = [&](double rotations) {
      return dims_ * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta_));
    };
    double low = dimension(rope_.positive("beta_fast", 32)), high = dimension(rope_.positive("beta_slow", 1));
    if (rope_.flag("truncate", true)) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, static_cast<double>(dims_ - 1));
    if (low == high) high += 0.001;

    std::vector<float> out = powers(theta_);
    for (size_t i = 0; i < out.size(); ++i) {
      const auto ramp = static_cast<float>(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
      out[i] = out[i] / static_cast<float>(factor) * ramp + out[i] * (1 - ramp);
    }
    return made(std::move(out), magnitude);
  }

  RopeSpec longrope() {
    const double original = original_length();
    const double trained = config_.count("max_position_embeddings", 2048);
    const double factor = rope_.positive("factor", trained / original);
    const double usual = factor <= 1 || original <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
    const double length = config_.wanted_context() > 0 ? static_cast<double>(config_.wanted_context()) : trained;
    const std::vector<float> factors = rope_.numbers(length > original ? "long_factor" : "short_factor", size());
    if (factors.empty())
      rope_.fail(
          error(Code::invalid, "rope type longrope needs short_factor and long_factor, {} numbers each", size()));
    return divided(factors, rope_.number("attention_factor", usual));
  }

  RopeSpec llama3() {
    const double factor = rope_.positive("factor", 8), original = original_length();
    const double low = rope_.positive("low_freq_factor", 1), high = rope_.positive("high_freq_factor", 4);
    std::vector<float> out = powers(theta_);
    for (float& frequency : out) {
      const double length = 2 * std::numbers::pi / static_cast<double>(frequency);
      if (length < original / high) continue;
      if (length > original / low) {
        frequency /= static_cast<float>(factor);
      } else {
        const double smooth = high == low ? 0 : (original / length - low) / (high - low);
        frequency = static_cast<float>((1 - smooth) * static_cast<double>(frequency) / factor +
                                       smooth * static_cast<double>(frequency));
      }
    }
    return made(std::move(out));
  }

  Config& config_;
  Config& rope_;
  int32_t dims_;
  double theta_;
  int32_t head_dim_;
};

int32_t dims_of(Config& config, Config& rope, const RopeChoice& choice) {
  if (config.has("rotary_dims")) return config.count("rotary_dims", choice.head_dim);
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
