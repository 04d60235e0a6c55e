#include "model/mixers/mixers.h"

#include "base/check.h"

namespace millrace {
namespace {

// Kinds that are described but not built have no weights: check_mixer() refuses them before anything else is asked.
template <class Kind>
struct WeightsOf;
template <>
struct WeightsOf<GqaSpec> {
  using Type = GqaWeights;
};
template <>
struct WeightsOf<MlaSpec> {
  using Type = MlaWeights;
};
template <class Kind>
concept Built = requires {
  typename WeightsOf<Kind>::Type;
};

// Calls body(kind) with the kind the spec holds.
template <class Spec, class F>
auto as_built(Spec& spec, F&& body) {
  using Answer = decltype(body(std::get<GqaSpec>(spec)));
  return std::visit(
      [&](auto& kind) -> Answer {
        if constexpr (Built<std::remove_const_t<std::remove_reference_t<decltype(kind)>>>) {
          return body(kind);
        } else {
          CHECK(false, "a mixer that is not built");
          return Answer();
        }
      },
      spec);
}

template <class Kind>
auto& place_of(const Kind&, MixerWeights& all) {
  using Weights = typename WeightsOf<Kind>::Type;
  return std::holds_alternative<Weights>(all) ? std::get<Weights>(all) : all.emplace<Weights>();
}

template <class Kind>
const auto& held(const Kind&, const MixerWeights& all) {
  return std::get<typename WeightsOf<Kind>::Type>(all);
}

}  // namespace

void visit_mixer(SlotWalk& walk, const MixerSpec& spec, MixerWeights& weights) {
  as_built(spec, [&](const auto& kind) { visit(walk, kind, place_of(kind, weights)); });
}

Result<void> check_mixer(const ModelSpec& spec, const MixerSpec& mixer, int32_t layer) {
  return std::visit(
      [&](const auto& kind) -> Result<void> {
        if constexpr (Built<std::remove_const_t<std::remove_reference_t<decltype(kind)>>>) {
          return check(spec, kind, layer);
        } else {
          return error(Code::unsupported, "its mixer is not attention, which is all that is built");
        }
      },
      mixer);
}

Result<void> check_runnable(const ModelSpec& spec, const MixerSpec& mixer) {
  return as_built(mixer, [&](const auto& kind) { return check_runnable(spec, kind); });
}

void run_mixer(Ops& ops, const MixerSpec& spec, const MixerWeights& weights, const KvView& kv, Tensor in, Tensor out) {
  as_built(spec, [&](const auto& kind) { run(ops, kind, held(kind, weights), kv, in, out); });
}

KvShape kv_shape(const MixerSpec& spec, DType type) {
  return as_built(spec, [&](const auto& kind) { return kv_shape(kind, type); });
}

int32_t kv_source(const MixerSpec& spec) {
  const auto* gqa = std::get_if<GqaSpec>(&spec);
  return gqa != nullptr ? gqa->kv_from : -1;
}

int32_t window_of(const MixerSpec& spec) {
  const auto* gqa = std::get_if<GqaSpec>(&spec);
  return gqa != nullptr ? gqa->window : 0;
}

int32_t grid_of(const MixerSpec& spec) {
  const auto* gqa = std::get_if<GqaSpec>(&spec);
  return gqa != nullptr ? gqa->grid : 0;
}

bool is_causal(const MixerSpec& spec) {
  const auto* gqa = std::get_if<GqaSpec>(&spec);
  return gqa == nullptr || gqa->causal;
}

int32_t rope_of(const MixerSpec& spec) {
  return as_built(spec, [](const auto& kind) { return kind.rope; });
}

int64_t constants_of(const MixerSpec& spec) {
  const auto* gqa = std::get_if<GqaSpec>(&spec);
  return gqa != nullptr ? static_cast<int64_t>(gqa->alibi.size()) : 0;
}

Result<void> upload_constants(Backend& backend, const MixerSpec& spec, std::span<const Rope> ropes,
                              MixerWeights& weights) {
  return as_built(spec,
                  [&](const auto& kind) { return upload_constants(backend, kind, ropes, place_of(kind, weights)); });
}

TakenRows taken_rows(const MixerSpec& spec, Take take) {
  return as_built(spec, [&](const auto& kind) { return taken_rows(kind, take); });
}

void put_mixer_keys(GgufKeys& keys, const ModelSpec& model, const LayerSpec& layer) {
  as_built(layer.mixer, [&](const auto& kind) { put_keys(keys, model, layer, kind); });
}

std::string_view unsayable(const MixerSpec& spec, std::string_view gguf) {
  return as_built(spec, [&](const auto& kind) { return unsayable(kind, gguf); });
}

void settle_mixer_biases(MixerSpec& spec, const Checkpoint& checkpoint, int32_t layer) {
  as_built(spec, [&](auto& kind) { settle_biases(kind, checkpoint, layer); });
}

Result<void> shard_mixer(MixerSpec& spec, int32_t ranks) {
  return as_built(spec, [&](auto& kind) { return shard(kind, ranks); });
}

}  // namespace millrace
