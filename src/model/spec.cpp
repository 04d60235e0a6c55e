#include "model/spec.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "model/ffns/ffns.h"
#include "model/limits.h"
#include "model/mixers/mixers.h"
#include "model/shared.h"

namespace millrace {

Result<void> in_range(std::string_view what, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return {};
  return error(Code::invalid, "{} is {}: expected 1 to {}", what, value, max);
}

Result<void> check_norm(const std::optional<NormSpec>& norm) {
  if (norm && !(norm->epsilon >= 0 && norm->epsilon < 1)) {
    return error(Code::invalid, "the epsilon of a norm is {}: expected a number from 0 to 1", norm->epsilon);
  }
  return {};
}

namespace {

constexpr int32_t kMostStreams = 16;

Result<void> check_rope(const RopeSpec& rope) {
  if (rope.dims <= 0 || rope.dims % 2 != 0) {
    return error(Code::invalid, "rotary embedding turns {} dimensions of a head: expected an even number above 0",
                 rope.dims);
  }
  if (rope.frequencies.size() != static_cast<size_t>(rope.dims / 2)) {
    return error(Code::invalid, "{} rotary frequencies for {} dimensions: expected {}", rope.frequencies.size(),
                 rope.dims, rope.dims / 2);
  }
  for (float frequency : rope.frequencies) {
    if (!std::isfinite(frequency))
      return error(Code::invalid, "a rotary frequency is {}: check rope_theta and its scaling", frequency);
  }
  if (!std::isfinite(rope.magnitude)) return error(Code::invalid, "the rotary magnitude is {}", rope.magnitude);
  return {};
}

Result<void> check_layer(const ModelSpec& spec, int32_t index) {
  const LayerSpec& layer = spec.layers[static_cast<size_t>(index)];
  TRY_VOID(check_mixer(spec, layer.mixer, index));
  if (layer.beside) {
    TRY_VOID(check_mixer(spec, *layer.beside, index));
    const KvShape first = kv_shape(LayerSpec{.mixer = layer.mixer}, DType::f16);
    const KvShape second = kv_shape(LayerSpec{.mixer = *layer.beside}, DType::f16);
    if (first.state.kept() || !second.state.kept() || second.kv_heads > 0)
      return error(Code::unsupported, "of two mixers beside each other, only the second may have a state, and no keys");
  }
  if (layer.shared) TRY_VOID(check_shared(spec, index));
  if (is_absent(layer.mixer) && (is_absent(layer.ffn) || layer.parallel || layer.beside || layer.laurel > 0))
    return error(Code::invalid, "a layer without a mixer has to be a feed-forward part");
  if (is_absent(layer.ffn) && layer.parallel)
    return error(Code::invalid, "halves in parallel, of which one is missing");
  TRY_VOID(check_ffn(layer.ffn));
  for (const auto* norm : {&layer.mixer_norm, &layer.mixer_post_norm, &layer.ffn_norm, &layer.ffn_post_norm}) {
    TRY_VOID(check_norm(*norm));
  }
  if (!std::isfinite(layer.residual_scale) || !std::isfinite(layer.mixer_keep) || !std::isfinite(layer.ffn_keep))
    return error(Code::invalid, "the residual scales are {}, {} and {}", layer.residual_scale, layer.mixer_keep,
                 layer.ffn_keep);
  return {};
}

// What stands beside the layers' halves.
Result<void> check_beside(const ModelSpec& spec) {
  if (spec.layer_input) {
    TRY_VOID(in_range("the width of a layer's own input", spec.layer_input->width, kMaxWidth));
    TRY_VOID(in_range("the vocabulary of layers' own inputs", spec.layer_input->vocab, kMaxVocab));
    const int64_t all = static_cast<int64_t>(spec.layers.size()) * spec.layer_input->width;
    TRY_VOID(in_range("layers * the width of a layer's own input", all, kMaxWidth));
    TRY_VOID(check_norm(spec.layer_input->norm));
  }
  for (const LayerSpec& layer : spec.layers) {
    if (layer.laurel < 0 || layer.laurel > kMaxWidth || (layer.laurel > 0 && (layer.parallel || !layer.mixer_norm)))
      return error(Code::invalid, "a second path of rank {} beside this mixer", layer.laurel);
  }
  if (!spec.streams) return {};
  const StreamsSpec& streams = *spec.streams;
  if (streams.count < 2 || streams.count > kMostStreams || streams.active < 0 || streams.active >= streams.count) {
    return error(Code::invalid, "{} streams of which layers read number {}: expected 2 to {}, and one of them",
                 streams.count, streams.active, kMostStreams);
  }
  return check_norm(streams.norm);
}

Result<void> check_pool(const ModelSpec& spec) {
  if (spec.token_types < 0 || spec.token_types > kMaxVocab)
    return error(Code::invalid, "{} types of tokens", spec.token_types);
  if (!spec.pool) return {};
  constexpr size_t kMostProjections = 16;
  if (spec.pool->projections.size() > kMostProjections)
    return error(Code::invalid, "{} products after pooling: expected at most {}", spec.pool->projections.size(),
                 kMostProjections);
  for (const ProjectionSpec& each : spec.pool->projections) {
    TRY_VOID(in_range("the outputs of a product after pooling", each.outputs, kMaxWidth));
    TRY_VOID(check_norm(each.norm));
  }
  return {};
}

}  // namespace

Result<void> check_spec(const ModelSpec& spec) {
  TRY_VOID(in_range("the vocabulary size", spec.vocab, kMaxVocab));
  TRY_VOID(in_range("the width of the model (hidden_size)", spec.width, kMaxWidth));
  TRY_VOID(in_range("the width of the embedding table", spec.head_width(), kMaxWidth));
  TRY_VOID(in_range("the context length", spec.context, kMaxPositions));
  TRY_VOID(in_range("the number of layers", static_cast<int64_t>(spec.layers.size()), kMaxLayers));
  if (spec.positions < 0 || spec.positions > kMaxPositions)
    return error(Code::invalid, "{} learned positions", spec.positions);
  if (!std::isfinite(spec.logit_scale) || !std::isfinite(spec.embed_scale) || !(spec.logit_softcap >= 0)) {
    return error(Code::invalid, "a scale of the model is not a finite number: embedding {}, logits {}, softcap {}",
                 spec.embed_scale, spec.logit_scale, spec.logit_softcap);
  }
  for (const RopeSpec& rope : spec.ropes) TRY_VOID(check_rope(rope));
  TRY_VOID(check_beside(spec));
  TRY_VOID(check_pool(spec));
  TRY_VOID(check_norm(spec.embed_norm));
  TRY_VOID(check_norm(spec.final_norm));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto checked = check_layer(spec, static_cast<int32_t>(i));
    if (!checked.ok()) return within(fmt::format("layer {}", i), std::move(checked).error());
  }
  return {};
}

bool sees_ahead(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers, [](const LayerSpec& layer) { return !is_causal(layer.mixer); });
}

bool fills_masks(const ModelSpec& spec) { return spec.head && sees_ahead(spec); }

Result<void> check_runnable(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) TRY_VOID(check_runnable(spec, layer.mixer));
  return {};
}

}  // namespace millrace
