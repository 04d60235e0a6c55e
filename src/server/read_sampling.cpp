#include "server/read_sampling.h"

#include <algorithm>
#include <random>
#include <string>

#include "server/field_reader.h"

namespace millrace {
namespace {

// Random, but short enough that it can be typed again.
uint64_t fresh_seed() {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator() & 0x7FFFFFFF;
}

void read_seed(const JsonObject& body, RequestBody& out) {
  const Json* value = find(body, "seed");
  int64_t seed = -1;
  if (value != nullptr) {
    seed = value->is_int64() ? value->get_int64() : static_cast<int64_t>(value->to_number<double>());
  }
  out.new_seed = value == nullptr || seed == -1;
  out.request.sampling.seed = out.new_seed ? fresh_seed() : static_cast<uint64_t>(seed);
}

// Fields of the table that are no sampling value's own name.
double asked_for(const FieldReader& read, const SamplingValue& value, double otherwise) {
  if (value.name == "repetition_penalty") otherwise = read.number("repeat_penalty", otherwise);
  return read.number(value.name, otherwise);
}

}  // namespace

std::optional<ApiError> read_sampling(const JsonObject& body, const SamplingDefaults& defaults, RequestBody& out) {
  const FieldReader read(body);
  Sampling& s = out.request.sampling;
  s = defaults.sampling;
  for (const SamplingValue& value : sampling_values()) {
    // At the edge a field may say -1 for "all", and a share of nothing still leaves the likeliest token.
    if (value.number != nullptr) {
      s.*value.number = std::max(asked_for(read, value, s.*value.number), value.least);
    } else {
      s.*value.integer = static_cast<int32_t>(std::max(asked_for(read, value, s.*value.integer), value.least));
    }
  }
  if (s.mirostat == 1) return not_built("mirostat", "mirostat 1 is not built; version 2 is");
  out.dry_breakers = read.has("dry_sequence_breakers") ? read.texts("dry_sequence_breakers") : defaults.dry_breakers;
  if (const Json* bias = find(body, "logit_bias")) {
    for (const auto& member : bias->get_object())
      s.bias.push_back({std::stoi(std::string(member.key())), static_cast<float>(member.value().to_number<double>())});
  }
  FillAsk& fill = out.request.fill;
  fill = defaults.fill;
  fill.steps = read.integer("diffusion_steps", fill.steps);
  fill.block = read.integer("block_length", fill.block);
  if (read.has("remasking")) {
    auto rule = remasking_from_name(read.text("remasking"));
    if (!rule.ok()) return bad_field("remasking", rule.error().message);
    fill.remasking = *rule;
  }
  read_seed(body, out);
  return {};
}

}  // namespace millrace
