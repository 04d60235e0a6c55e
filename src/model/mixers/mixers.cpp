#include "model/mixers/mixers.h"

#include "base/check.h"
#include "model/gguf_states.h"
#include "model/limits.h"

namespace millrace {
namespace {

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
template <>
struct WeightsOf<SsmSpec> {
  using Type = SsmWeights;
};
template <>
struct WeightsOf<DeltaSpec> {
  using Type = DeltaWeights;
};
template <>
struct WeightsOf<DecaySpec> {
  using Type = DecayWeights;
};
template <>
struct WeightsOf<ShortConvSpec> {
  using Type = ShortConvWeights;
};
template <>
struct WeightsOf<LruSpec> {
  using Type = LruWeights;
};
template <>
struct WeightsOf<TimeMixSpec> {
  using Type = TimeMixWeights;
};
template <>
struct WeightsOf<ChannelMixSpec> {
  using Type = ChannelMixWeights;
};
template <>
struct WeightsOf<HyenaSpec> {
  using Type = HyenaWeights;
};
template <>
struct WeightsOf<NoMixer> {
  using Type = NoWeights;
};

// Of what std::visit hands over. The functions of MixerSpec would take any kind: overloads cannot be asked for.
template <class Reference, class... Kinds>
constexpr bool kOneOf = (std::is_same_v<std::remove_cvref_t<Reference>, Kinds> || ...);
template <class Reference>
constexpr bool kAttention = kOneOf<Reference, GqaSpec, MlaSpec>;

template <class Kind>
auto& place_of(const Kind&, MixerWeights& all) {
  using Weights = typename WeightsOf<Kind>::Type;
  return std::holds_alternative<Weights>(all) ? std::get<Weights>(all) : all.emplace<Weights>();
}

template <class Kind>
const auto& held(const Kind&, const MixerWeights& all) {
  return std::get<typename WeightsOf<Kind>::Type>(all);
}

void visit(SlotWalk&, const NoMixer&, NoWeights&) {}
Result<void> check(const ModelSpec&, const NoMixer&, int32_t) { return {}; }
void run(Ops&, const NoMixer&, const NoWeights&, const KvView&, Tensor, Tensor) { CHECK(false, "there is no mixer"); }
KvShape kv_shape(const NoMixer&, const KvForm& form) { return {.form = form}; }

}  // namespace

int32_t even_cuts(std::initializer_list<int64_t> counts) {
  int32_t cuts = 16;
  for (int64_t count : counts) {
    while (count % cuts != 0) cuts /= 2;
  }
  return cuts;
}

Result<void> check_taps(int32_t taps) { return in_range("the taps of the short convolution", taps, 8); }

void visit_mixer(SlotWalk& walk, const MixerSpec& spec, MixerWeights& weights) {
  std::visit([&](const auto& kind) { visit(walk, kind, place_of(kind, weights)); }, spec);
}

Result<void> check_mixer(const ModelSpec& spec, const MixerSpec& mixer, int32_t layer) {
  return std::visit([&](const auto& kind) { return check(spec, kind, layer); }, mixer);
}

Result<void> check_runnable(const ModelSpec& spec, const MixerSpec& mixer) {
  return std::visit(
      [&](const auto& kind) -> Result<void> {
        if constexpr (kAttention<decltype(kind)>) {
          return check_runnable(spec, kind);
        } else {
          return {};
        }
      },
      mixer);
}

void run_mixer(Ops& ops, const MixerSpec& spec, const MixerWeights& weights, const KvView& kv, Tensor in, Tensor out) {
  std::visit([&](const auto& kind) { run(ops, kind, held(kind, weights), kv, in, out); }, spec);
}

KvShape kv_shape(const LayerSpec& layer, const KvForm& form) {
  auto shape_of = [&](const MixerSpec& spec) {
    return std::visit([&](const auto& kind) { return kv_shape(kind, form); }, spec);
  };
  KvShape shape = shape_of(layer.mixer);
  if (layer.beside) shape.state = shape_of(*layer.beside).state;
  if (layer.shared) {
    const StateShape state = shape.state;
    shape = kv_shape(layer.shared->gqa, form);
    shape.state = state;
  }
  return shape;
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

Result<void> forget(MixerSpec& spec, const KvKeep& keep) {
  return std::visit(
      [&](auto& kind) -> Result<void> {
        if constexpr (kOneOf<decltype(kind), GqaSpec>) {
          return forget(kind, keep);
        } else if constexpr (kOneOf<decltype(kind), NoMixer>) {
          return {};
        } else if constexpr (kAttention<decltype(kind)>) {
          return error(Code::unsupported, "keeps latents, whose rotated part all heads share (MLA)");
        } else {
          return error(Code::unsupported, "has a state of a fixed size already");
        }
      },
      spec);
}

bool is_causal(const MixerSpec& spec) {
  const auto* gqa = std::get_if<GqaSpec>(&spec);
  return gqa == nullptr || gqa->causal;
}

int32_t rope_of(const MixerSpec& spec) {
  return std::visit(
      [](const auto& kind) {
        if constexpr (requires { kind.rope; }) {
          return kind.rope;
        } else {
          return int32_t{-1};
        }
      },
      spec);
}

int64_t constants_of(const MixerSpec& spec) {
  if (const auto* gqa = std::get_if<GqaSpec>(&spec)) return static_cast<int64_t>(gqa->alibi.size());
  if (const auto* ssm = std::get_if<SsmSpec>(&spec)) return count_constants(*ssm);
  if (const auto* decay = std::get_if<DecaySpec>(&spec)) return count_constants(*decay);
  return 0;
}

Result<void> upload_constants(Backend& backend, const MixerSpec& spec, std::span<const Rope> ropes,
                              MixerWeights& weights) {
  return std::visit(
      [&](const auto& kind) -> Result<void> {
        auto& place = place_of(kind, weights);
        if constexpr (kAttention<decltype(kind)> || kOneOf<decltype(kind), SsmSpec, DecaySpec, LruSpec>) {
          return upload_constants(backend, kind, ropes, place);
        } else {
          return {};
        }
      },
      spec);
}

TakenRows taken_rows(const MixerSpec& spec, Take take) {
  return std::visit(
      [&](const auto& kind) -> TakenRows {
        if constexpr (kAttention<decltype(kind)> || kOneOf<decltype(kind), DeltaSpec, DecaySpec>) {
          return taken_rows(kind, take);
        } else {
          return {};
        }
      },
      spec);
}

void put_mixer_keys(GgufKeys& keys, const ModelSpec& model, const LayerSpec& layer) {
  std::visit(
      [&](const auto& kind) {
        if constexpr (kAttention<decltype(kind)>) put_keys(keys, model, layer, kind);
      },
      layer.mixer);
}

std::string_view unsayable(const MixerSpec& spec, std::string_view gguf) {
  return std::visit(
      [&](const auto& kind) -> std::string_view {
        if constexpr (kAttention<decltype(kind)>) {
          return unsayable(kind, gguf);
        } else {
          if (has_states(gguf)) return "";  // asked of the model as a whole
          return "layers with a state";
        }
      },
      spec);
}

void settle_mixer_biases(MixerSpec& spec, const Checkpoint& checkpoint, int32_t layer) {
  std::visit(
      [&](auto& kind) {
        if constexpr (kAttention<decltype(kind)>) settle_biases(kind, checkpoint, layer);
      },
      spec);
}

Result<void> shard_mixer(MixerSpec& spec, int32_t ranks) {
  return std::visit(
      [&](auto& kind) -> Result<void> {
        if constexpr (kAttention<decltype(kind)>) {
          return shard(kind, ranks);
        } else {
          return error(Code::unsupported, "layers with a state cannot be divided over {} devices yet", ranks);
        }
      },
      spec);
}

}  // namespace millrace
