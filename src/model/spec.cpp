#include "model/spec.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"

namespace millrace {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;  // of any vector of a layer; the largest known models have 2^17
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

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

Result<void> check_gqa(const ModelSpec& spec, const GqaSpec& gqa, int32_t layer) {
  TRY_VOID(in_range("the number of attention heads", gqa.heads, kMaxWidth));
  TRY_VOID(in_range("the number of key/value heads", gqa.kv_heads, kMaxWidth));
  TRY_VOID(in_range("the head dimension", gqa.head_dim, kMaxWidth));
  TRY_VOID(in_range("heads * head dimension", int64_t{gqa.heads} * gqa.head_dim, kMaxWidth));
  if (gqa.heads % gqa.kv_heads != 0) {
    return error(Code::invalid, "{} attention heads cannot share {} key/value heads: expected a divisor", gqa.heads,
                 gqa.kv_heads);
  }
  if (gqa.window < 0) return error(Code::invalid, "the attention window is {}: expected 0 (none) or more", gqa.window);
  if (!std::isfinite(gqa.scale) || gqa.scale == 0) return error(Code::invalid, "the attention scale is {}", gqa.scale);
  if (!(gqa.softcap >= 0)) return error(Code::invalid, "the attention softcap is {}", gqa.softcap);
  if (!gqa.alibi.empty() && gqa.alibi.size() != static_cast<size_t>(gqa.heads)) {
    return error(Code::invalid, "{} ALiBi slopes for {} heads", gqa.alibi.size(), gqa.heads);
  }
  if (gqa.rope >= static_cast<int32_t>(spec.ropes.size())) {
    return error(Code::invalid, "rotary set {} of {}", gqa.rope, spec.ropes.size());
  }
  if (gqa.rope >= 0 && spec.ropes[static_cast<size_t>(gqa.rope)].dims > gqa.head_dim) {
    return error(Code::invalid, "rotary embedding turns {} dimensions of heads that have {}",
                 spec.ropes[static_cast<size_t>(gqa.rope)].dims, gqa.head_dim);
  }
  if (gqa.kv_from >= layer)
    return error(Code::invalid, "reads keys of layer {}, which does not come before it", gqa.kv_from);
  TRY_VOID(check_norm(gqa.qk_norm));
  return check_norm(gqa.out_norm);
}

Result<void> check_mla(const ModelSpec& spec, const MlaSpec& mla) {
  TRY_VOID(in_range("the number of attention heads", mla.heads, kMaxWidth));
  TRY_VOID(in_range("the rank of keys and values (kv_lora_rank)", mla.kv_rank, kMaxWidth));
  TRY_VOID(in_range("the part of a head that does not turn", mla.nope_dim, kMaxWidth));
  TRY_VOID(in_range("the part of a head that turns", mla.rope_dim, kMaxWidth));
  TRY_VOID(in_range("the width of a head's values", mla.v_dim, kMaxWidth));
  const int64_t widest = std::max({int64_t{mla.kv_rank}, int64_t{mla.nope_dim}, int64_t{mla.v_dim}}) + mla.rope_dim;
  TRY_VOID(in_range("heads * rank", mla.heads * widest, kMaxWidth));
  if (mla.q_rank < 0 || mla.q_rank > kMaxWidth)
    return error(Code::invalid, "the rank of queries is {}: expected 0 (none) to {}", mla.q_rank, kMaxWidth);
  if (mla.rope < 0 || mla.rope >= static_cast<int32_t>(spec.ropes.size()) ||
      spec.ropes[static_cast<size_t>(mla.rope)].dims != mla.rope_dim) {
    return error(Code::invalid, "latent attention needs rotary frequencies for its {} dimensions", mla.rope_dim);
  }
  return check_norm(mla.norm);
}

Result<void> check_moe(const MoeSpec& moe) {
  TRY_VOID(in_range("the number of experts", moe.experts, kMaxLayers));
  TRY_VOID(in_range("the experts of a token", moe.chosen, moe.experts));
  TRY_VOID(in_range("the width of all experts", int64_t{moe.experts} * moe.width, kMaxWidth * 8));
  if (moe.shared_width < 0 || moe.shared_width > kMaxWidth)
    return error(Code::invalid, "the width of shared experts is {}: expected 0 (none) to {}", moe.shared_width,
                 kMaxWidth);
  return {};
}

Result<void> check_mixer(const ModelSpec& spec, const MixerSpec& mixer, int32_t index) {
  if (const auto* mla = std::get_if<MlaSpec>(&mixer)) return check_mla(spec, *mla);
  const auto* gqa = std::get_if<GqaSpec>(&mixer);
  if (gqa == nullptr) return error(Code::unsupported, "its mixer is not attention, which is all that is built");
  if (!gqa->causal) return error(Code::unsupported, "its attention is not causal, which is not built");
  if (gqa->sinks) return error(Code::unsupported, "its attention has sinks, which are not built");
  return check_gqa(spec, *gqa, index);
}

Result<void> check_layer(const ModelSpec& spec, int32_t index) {
  const LayerSpec& layer = spec.layers[static_cast<size_t>(index)];
  TRY_VOID(check_mixer(spec, layer.mixer, index));
  if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) TRY_VOID(check_moe(*moe));
  if (const auto* dense = std::get_if<DenseSpec>(&layer.ffn)) {
    TRY_VOID(in_range("the feed-forward width", dense->width, kMaxWidth * 8));
    TRY_VOID(check_norm(dense->inner_norm));
  }
  for (const auto* norm : {&layer.mixer_norm, &layer.mixer_post_norm, &layer.ffn_norm, &layer.ffn_post_norm}) {
    TRY_VOID(check_norm(*norm));
  }
  if (!std::isfinite(layer.residual_scale))
    return error(Code::invalid, "the residual scale is {}", layer.residual_scale);
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
  TRY_VOID(check_norm(spec.embed_norm));
  TRY_VOID(check_norm(spec.final_norm));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto checked = check_layer(spec, static_cast<int32_t>(i));
    if (!checked.ok()) return within(fmt::format("layer {}", i), std::move(checked).error());
  }
  return {};
}

Result<void> check_runnable(const ModelSpec& spec) {
  // What every backend's attention has room for.
  constexpr int32_t kMostHeadDim = 512, kMostGroup = 64;
  for (const LayerSpec& layer : spec.layers) {
    const auto* gqa = std::get_if<GqaSpec>(&layer.mixer);
    if (gqa != nullptr && (gqa->head_dim > kMostHeadDim || gqa->heads / gqa->kv_heads > kMostGroup)) {
      return error(Code::unsupported,
                   "heads of {} numbers, {} of them for each key/value head: heads of at most {} and groups of at most "
                   "{} can be run",
                   gqa->head_dim, gqa->heads / gqa->kv_heads, kMostHeadDim, kMostGroup);
    }
    const bool mla = std::holds_alternative<MlaSpec>(layer.mixer), moe = std::holds_alternative<MoeSpec>(layer.ffn);
    if (!mla && !moe) continue;
    return error(Code::unsupported, "{} has {}, which can be planned but not run yet", spec.architecture,
                 mla && moe ? "latent attention and experts"
                 : mla      ? "latent attention"
                            : "experts");
  }
  return {};
}

}  // namespace millrace
