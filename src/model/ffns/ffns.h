// Kinds of feed-forward part: what each answers about itself. A kind is its spec (model/spec.h), its weights
// (model/weights.h) and one file here, which holds everything that is particular to it; the functions of FfnSpec below
// ask whichever kind it is. Any thread; run on the engine's.
#pragma once

#include "model/gguf_writing.h"
#include "model/slots.h"
#include "tensor/checkpoint.h"

namespace millrace {

// Of a layer's feed-forward part, whatever its kind.
void visit_ffn(SlotWalk& walk, const FfnSpec& spec, FfnWeights& weights);
Result<void> check_ffn(const FfnSpec& spec);
void run_ffn(Ops& ops, const FfnSpec& spec, const FfnWeights& weights, Tensor in, Tensor out);
void put_ffn_keys(GgufKeys& keys, const FfnSpec& spec);
// GGUF says with its tensors which products have biases, where the architecture leaves that open.
void settle_ffn_biases(FfnSpec& spec, const Checkpoint& checkpoint, int32_t layer);
Result<void> shard_ffn(FfnSpec& spec, int32_t ranks);
inline bool is_absent(const FfnSpec& spec) { return std::holds_alternative<NoFfn>(spec); }
struct ExpertCount {
  int32_t experts = 0, chosen = 0;  // chosen: of a token
};
ExpertCount experts_of(const FfnSpec& spec);  // 0: it has none
inline int32_t chosen_experts(const FfnSpec& spec) { return experts_of(spec).chosen; }
Activation activation_of(const FfnSpec& spec);
int32_t width_of(const FfnSpec& spec);   // of a token's inner vector; of one expert where there is nothing else
float sparsity_of(const FfnSpec& spec);  // DenseSpec::sparsity

// "512 columns of an expert cannot be divided over 3 devices; choose a divisor"
Result<void> check_divides(std::string_view what, int32_t count, int32_t ranks);

// ---- dense.cpp
void visit(SlotWalk& walk, const DenseSpec& spec, DenseWeights& weights);
Result<void> check(const DenseSpec& spec);
void run(Ops& ops, const DenseSpec& spec, const DenseWeights& weights, Tensor in, Tensor out);
void put_keys(GgufKeys& keys, const DenseSpec& spec);
void settle_biases(DenseSpec& spec, const Checkpoint& checkpoint, int32_t layer);
Result<void> shard(DenseSpec& spec, int32_t ranks);

// ---- moe.cpp
void visit(SlotWalk& walk, const MoeSpec& spec, MoeWeights& weights);
Result<void> check(const MoeSpec& spec);
void run(Ops& ops, const MoeSpec& spec, const MoeWeights& weights, Tensor in, Tensor out);
void put_keys(GgufKeys& keys, const MoeSpec& spec);
void settle_biases(MoeSpec& spec, const Checkpoint& checkpoint, int32_t layer);
Result<void> shard(MoeSpec& spec, int32_t ranks);
// The same where the router reads another vector than the experts.
void run_routed(Ops& ops, const MoeSpec& spec, const MoeWeights& weights, Tensor asked, Tensor in, Tensor out);

// ---- twofold.cpp
void visit(SlotWalk& walk, const TwofoldSpec& spec, TwofoldWeights& weights);
Result<void> check(const TwofoldSpec& spec);
void run(Ops& ops, const TwofoldSpec& spec, const TwofoldWeights& weights, Tensor in, Tensor out);
void put_keys(GgufKeys& keys, const TwofoldSpec& spec);
void settle_biases(TwofoldSpec& spec, const Checkpoint& checkpoint, int32_t layer);
Result<void> shard(TwofoldSpec& spec, int32_t ranks);

}  // namespace millrace
