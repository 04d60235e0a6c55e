// Models a little different from a given one: a rank's part of it, or with other attention.
#include <algorithm>

#include "model/ffns/ffns.h"
#include "model/mixers/mixers.h"
#include "plan/capacity.h"

namespace millrace {
namespace {

Result<void> shard_layer(LayerSpec& layer, int32_t ranks) {
  TRY_VOID(shard_mixer(layer.mixer, ranks));
  return shard_ffn(layer.ffn, ranks);
}

template <class Change>
ModelSpec changed(const ModelSpec& spec, Change change) {
  ModelSpec other = spec;
  for (size_t i = 0; i < other.layers.size(); ++i) change(static_cast<int32_t>(i), other.layers[i]);
  return other;
}

ModelSpec with_latent(const ModelSpec& spec) {
  ModelSpec other = spec;
  constexpr int32_t kRank = 512, kRopeDim = 64;  // DeepSeek's
  RopeSpec rope = {.dims = kRopeDim, .frequencies = std::vector<float>(kRopeDim / 2, 1.0f)};
  other.ropes.push_back(rope);
  for (LayerSpec& layer : other.layers) {
    const auto* held = std::get_if<GqaSpec>(&layer.mixer);
    if (held == nullptr) continue;
    const GqaSpec gqa = *held;
    layer.mixer = MlaSpec{.heads = gqa.heads,
                          .kv_rank = kRank,
                          .nope_dim = gqa.head_dim,
                          .rope_dim = kRopeDim,
                          .v_dim = gqa.head_dim,
                          .scale = gqa.scale,
                          .rope = static_cast<int32_t>(other.ropes.size()) - 1};
  }
  return other;
}

}  // namespace

Result<ModelSpec> shard_spec(const ModelSpec& spec, int32_t ranks) {
  if (ranks < 1 || ranks > 1024) return error(Code::invalid, "{} devices; give 1 to 1024", ranks);
  if (ranks == 1) return spec;
  ModelSpec part = spec;
  part.vocab = (spec.vocab + ranks - 1) / ranks;
  for (LayerSpec& layer : part.layers) TRY_VOID(shard_layer(layer, ranks));
  return part;
}

Result<ModelSpec> with_kv_heads(const ModelSpec& spec, int32_t kv_heads) {
  if (kv_heads < 1) return error(Code::invalid, "{} key/value heads; a model needs at least 1", kv_heads);
  ModelSpec other = spec;
  for (LayerSpec& layer : other.layers) {
    auto* gqa = std::get_if<GqaSpec>(&layer.mixer);
    if (gqa == nullptr) return error(Code::invalid, "this model's attention has no key/value heads to change");
    if (gqa->heads % kv_heads != 0) {
      return error(Code::invalid, "{} attention heads cannot share {} key/value heads; choose a divisor of {}",
                   gqa->heads, kv_heads, gqa->heads);
    }
    gqa->kv_heads = kv_heads;
  }
  return other;
}

std::vector<AttentionVariant> attention_variants(const ModelSpec& spec) {
  std::vector<AttentionVariant> all;
  int32_t heads = 0, kv_heads = 0;
  for (const LayerSpec& layer : spec.layers) {
    const auto* gqa = std::get_if<GqaSpec>(&layer.mixer);
    if (gqa == nullptr) return all;
    heads = gqa->heads, kv_heads = gqa->kv_heads;
  }
  auto add = [&](std::string name, Result<ModelSpec> variant, bool own) {
    if (variant.ok()) all.push_back({std::move(name), std::move(*variant), own});
  };
  add(fmt::format("MHA, {} kv heads", heads), with_kv_heads(spec, heads), kv_heads == heads);
  const int32_t shared = kv_heads > 1 && kv_heads < heads ? kv_heads : heads % 5 == 0 ? heads / 5 : heads / 4;
  if (shared > 1 && shared < heads)
    add(fmt::format("GQA, {} kv heads", shared), with_kv_heads(spec, shared), kv_heads == shared);
  add("MQA, 1 kv head", with_kv_heads(spec, 1), kv_heads == 1);
  add("MLA, latent of 512 + 64", with_latent(spec), false);
  add("layers share keys in pairs",
      changed(spec,
              [](int32_t i, LayerSpec& layer) {
                auto* gqa = std::get_if<GqaSpec>(&layer.mixer);
                if (i % 2 == 1 && gqa != nullptr) gqa->kv_from = i - 1;
              }),
      false);
  add("window of 1024 in 5 layers of 6",
      changed(spec,
              [](int32_t i, LayerSpec& layer) {
                auto* gqa = std::get_if<GqaSpec>(&layer.mixer);
                if (i % 6 != 5 && gqa != nullptr) gqa->window = 1024;
              }),
      false);
  return all;
}

}  // namespace millrace
