#include "model/ffns/ffns.h"

#include "base/check.h"

namespace millrace {
namespace {

// The weights of a kind that has them in a variant that may still hold another's.
template <class Weights>
Weights& weights_of(FfnWeights& all) {
  return std::holds_alternative<Weights>(all) ? std::get<Weights>(all) : all.emplace<Weights>();
}

DenseWeights& place_of(const DenseSpec&, FfnWeights& all) { return weights_of<DenseWeights>(all); }
MoeWeights& place_of(const MoeSpec&, FfnWeights& all) { return weights_of<MoeWeights>(all); }
TwofoldWeights& place_of(const TwofoldSpec&, FfnWeights& all) { return weights_of<TwofoldWeights>(all); }
const DenseWeights& held(const DenseSpec&, const FfnWeights& all) { return std::get<DenseWeights>(all); }
const MoeWeights& held(const MoeSpec&, const FfnWeights& all) { return std::get<MoeWeights>(all); }
const TwofoldWeights& held(const TwofoldSpec&, const FfnWeights& all) { return std::get<TwofoldWeights>(all); }

// The parts a feed-forward part may have, whatever its kind.
const MoeSpec* mixture_of(const FfnSpec& spec) {
  if (const auto* both = std::get_if<TwofoldSpec>(&spec)) return &both->moe;
  return std::get_if<MoeSpec>(&spec);
}
const DenseSpec* dense_of(const FfnSpec& spec) {
  if (const auto* both = std::get_if<TwofoldSpec>(&spec)) return &both->dense;
  return std::get_if<DenseSpec>(&spec);
}

// A layer without a feed-forward part.
NoWeights& place_of(const NoFfn&, FfnWeights& all) { return weights_of<NoWeights>(all); }
NoWeights held(const NoFfn&, const FfnWeights&) { return {}; }
void visit(SlotWalk&, const NoFfn&, NoWeights&) {}
Result<void> check(const NoFfn&) { return {}; }
void run(Ops&, const NoFfn&, const NoWeights&, Tensor, Tensor) { CHECK(false, "there is no feed-forward part"); }
void put_keys(GgufKeys&, const NoFfn&) {}
void settle_biases(NoFfn&, const Checkpoint&, int32_t) {}
Result<void> shard(NoFfn&, int32_t) { return {}; }

}  // namespace

void visit_ffn(SlotWalk& walk, const FfnSpec& spec, FfnWeights& weights) {
  std::visit([&](const auto& kind) { visit(walk, kind, place_of(kind, weights)); }, spec);
}

Result<void> check_ffn(const FfnSpec& spec) {
  return std::visit([](const auto& kind) { return check(kind); }, spec);
}

void run_ffn(Ops& ops, const FfnSpec& spec, const FfnWeights& weights, Tensor in, Tensor out) {
  std::visit([&](const auto& kind) { run(ops, kind, held(kind, weights), in, out); }, spec);
}

void put_ffn_keys(GgufKeys& keys, const FfnSpec& spec) {
  std::visit([&](const auto& kind) { put_keys(keys, kind); }, spec);
}

void settle_ffn_biases(FfnSpec& spec, const Checkpoint& checkpoint, int32_t layer) {
  std::visit([&](auto& kind) { settle_biases(kind, checkpoint, layer); }, spec);
}

Result<void> shard_ffn(FfnSpec& spec, int32_t ranks) {
  return std::visit([&](auto& kind) { return shard(kind, ranks); }, spec);
}

ExpertCount experts_of(const FfnSpec& spec) {
  const MoeSpec* moe = mixture_of(spec);
  return moe != nullptr ? ExpertCount{moe->experts, moe->chosen} : ExpertCount{};
}

float sparsity_of(const FfnSpec& spec) {
  const DenseSpec* dense = dense_of(spec);
  return dense != nullptr ? dense->sparsity : 0;
}

Activation activation_of(const FfnSpec& spec) {
  if (const DenseSpec* dense = dense_of(spec)) return dense->activation;
  const MoeSpec* moe = mixture_of(spec);
  return moe != nullptr ? moe->activation : Activation::silu;
}

int32_t width_of(const FfnSpec& spec) {
  if (const DenseSpec* dense = dense_of(spec)) return dense->width;
  const MoeSpec* moe = mixture_of(spec);
  return moe != nullptr ? moe->width : 0;
}

Result<void> check_divides(std::string_view what, int32_t count, int32_t ranks) {
  if (count % ranks == 0) return {};
  return error(Code::invalid, "{} {} cannot be divided over {} devices; choose a divisor", count, what, ranks);
}

}  // namespace millrace
