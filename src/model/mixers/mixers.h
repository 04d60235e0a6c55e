// Kinds of mixer: what each answers about itself. A kind is its spec (model/spec.h), its weights (model/weights.h) and
// one file here, which holds everything that is particular to it; the functions of MixerSpec below ask whichever kind
// it is. Any thread; run on the engine's.
#pragma once

#include <initializer_list>
#include <span>

#include "cache/store.h"
#include "model/architecture.h"
#include "model/gguf_writing.h"
#include "model/slots.h"
#include "tensor/checkpoint.h"

namespace millrace {

// Of a stored tensor that holds several slots: how many rows it has, and which of them are the slot's.
struct TakenRows {
  int64_t stored = 0;
  std::vector<int64_t> rows;
  int64_t each = 0;  // rows are those of the first expert, and so many further are the next one's; 0: no experts
};

// Of a layer's mixer, whatever its kind.
void visit_mixer(SlotWalk& walk, const MixerSpec& spec, MixerWeights& weights);
Result<void> check_mixer(const ModelSpec& spec, const MixerSpec& mixer, int32_t layer);
Result<void> check_runnable(const ModelSpec& spec, const MixerSpec& mixer);  // by every backend
void run_mixer(Ops& ops, const MixerSpec& spec, const MixerWeights& weights, const KvView& kv, Tensor in, Tensor out);
KvShape kv_shape(const LayerSpec& layer, const KvForm& form);  // what its mixers keep of the past
inline bool is_absent(const MixerSpec& spec) { return std::holds_alternative<NoMixer>(spec); }
int32_t kv_source(const MixerSpec& spec);     // the layer whose keys it reads; -1: its own
int32_t window_of(const MixerSpec& spec);     // 0: sees everything
int32_t grid_of(const MixerSpec& spec);       // 0: none
bool is_causal(const MixerSpec& spec);        // sees no token after its own
int32_t rope_of(const MixerSpec& spec);       // index in ModelSpec::ropes; -1: no rotation
int64_t constants_of(const MixerSpec& spec);  // numbers that no file has: slopes
Result<void> upload_constants(Backend& backend, const MixerSpec& spec, std::span<const Rope> ropes,
                              MixerWeights& weights);
TakenRows taken_rows(const MixerSpec& spec, Take take);
void put_mixer_keys(GgufKeys& keys, const ModelSpec& model, const LayerSpec& layer);
std::string_view unsayable(const MixerSpec& spec, std::string_view gguf);  // what GGUF has no word for; empty: nothing
void settle_mixer_biases(MixerSpec& spec, const Checkpoint& checkpoint, int32_t layer);
Result<void> shard_mixer(MixerSpec& spec, int32_t ranks);
// Gives it a window and first positions that stay; the error is what it has that forbids it ("has a state").
Result<void> forget(MixerSpec& spec, const KvKeep& keep);

// Into how many equal pieces a state of so many channels and heads may be cut: a power of two that divides all.
int32_t even_cuts(std::initializer_list<int64_t> counts);
// "the taps of the convolution are 9: expected 1 to 8"
Result<void> check_taps(int32_t taps);

// ---- gqa.cpp
void visit(SlotWalk& walk, const GqaSpec& spec, GqaWeights& weights);
Result<void> check(const ModelSpec& spec, const GqaSpec& gqa, int32_t layer);
Result<void> check_runnable(const ModelSpec& spec, const GqaSpec& gqa);
void run(Ops& ops, const GqaSpec& spec, const GqaWeights& weights, const KvView& kv, Tensor in, Tensor out);
KvShape kv_shape(const GqaSpec& spec, const KvForm& form);
Result<void> upload_constants(Backend& backend, const GqaSpec& spec, std::span<const Rope> ropes, GqaWeights& weights);
TakenRows taken_rows(const GqaSpec& spec, Take take);
void put_keys(GgufKeys& keys, const ModelSpec& model, const LayerSpec& layer, const GqaSpec& spec);
std::string_view unsayable(const GqaSpec& spec, std::string_view gguf);
void settle_biases(GqaSpec& spec, const Checkpoint& checkpoint, int32_t layer);
Result<void> shard(GqaSpec& spec, int32_t ranks);
Result<void> forget(GqaSpec& spec, const KvKeep& keep);

// ---- mla.cpp
void visit(SlotWalk& walk, const MlaSpec& spec, MlaWeights& weights);
Result<void> check(const ModelSpec& spec, const MlaSpec& mla, int32_t layer);
Result<void> check_runnable(const ModelSpec& spec, const MlaSpec& mla);
void run(Ops& ops, const MlaSpec& spec, const MlaWeights& weights, const KvView& kv, Tensor in, Tensor out);
KvShape kv_shape(const MlaSpec& spec, const KvForm& form);
Result<void> upload_constants(Backend& backend, const MlaSpec& spec, std::span<const Rope> ropes, MlaWeights& weights);
TakenRows taken_rows(const MlaSpec& spec, Take take);
void put_keys(GgufKeys& keys, const ModelSpec& model, const LayerSpec& layer, const MlaSpec& spec);
std::string_view unsayable(const MlaSpec& spec, std::string_view gguf);
void settle_biases(MlaSpec& spec, const Checkpoint& checkpoint, int32_t layer);
Result<void> shard(MlaSpec& spec, int32_t ranks);

// ---- kinds with a state: ssm.cpp, delta.cpp, decay.cpp, short_conv.cpp, lru.cpp, rwkv.cpp, hyena.cpp. What is not
// declared of a kind is nothing: no constants, no rows out of fused tensors, no words in GGUF, no way to divide it over
// devices.
void visit(SlotWalk& walk, const SsmSpec& spec, SsmWeights& weights);
Result<void> check(const ModelSpec& spec, const SsmSpec& mixer, int32_t layer);
void run(Ops& ops, const SsmSpec& spec, const SsmWeights& weights, const KvView& kv, Tensor in, Tensor out);
KvShape kv_shape(const SsmSpec& spec, const KvForm& form);
void visit(SlotWalk& walk, const DeltaSpec& spec, DeltaWeights& weights);
Result<void> check(const ModelSpec& spec, const DeltaSpec& mixer, int32_t layer);
void run(Ops& ops, const DeltaSpec& spec, const DeltaWeights& weights, const KvView& kv, Tensor in, Tensor out);
KvShape kv_shape(const DeltaSpec& spec, const KvForm& form);
void visit(SlotWalk& walk, const DecaySpec& spec, DecayWeights& weights);
Result<void> check(const ModelSpec& spec, const DecaySpec& mixer, int32_t layer);
void run(Ops& ops, const DecaySpec& spec, const DecayWeights& weights, const KvView& kv, Tensor in, Tensor out);
KvShape kv_shape(const DecaySpec& spec, const KvForm& form);
void visit(SlotWalk& walk, const ShortConvSpec& spec, ShortConvWeights& weights);
Result<void> check(const ModelSpec& spec, const ShortConvSpec& mixer, int32_t layer);
void run(Ops& ops, const ShortConvSpec& spec, const ShortConvWeights& weights, const KvView& kv, Tensor in, Tensor out);
KvShape kv_shape(const ShortConvSpec& spec, const KvForm& form);
void visit(SlotWalk& walk, const LruSpec& spec, LruWeights& weights);
Result<void> check(const ModelSpec& spec, const LruSpec& mixer, int32_t layer);
void run(Ops& ops, const LruSpec& spec, const LruWeights& weights, const KvView& kv, Tensor in, Tensor out);
KvShape kv_shape(const LruSpec& spec, const KvForm& form);
void visit(SlotWalk& walk, const TimeMixSpec& spec, TimeMixWeights& weights);
Result<void> check(const ModelSpec& spec, const TimeMixSpec& mixer, int32_t layer);
void run(Ops& ops, const TimeMixSpec& spec, const TimeMixWeights& weights, const KvView& kv, Tensor in, Tensor out);
KvShape kv_shape(const TimeMixSpec& spec, const KvForm& form);
void visit(SlotWalk& walk, const ChannelMixSpec& spec, ChannelMixWeights& weights);
Result<void> check(const ModelSpec& spec, const ChannelMixSpec& mixer, int32_t layer);
void run(Ops& ops, const ChannelMixSpec& spec, const ChannelMixWeights& weights, const KvView& kv, Tensor in,
         Tensor out);
KvShape kv_shape(const ChannelMixSpec& spec, const KvForm& form);
void visit(SlotWalk& walk, const HyenaSpec& spec, HyenaWeights& weights);
Result<void> check(const ModelSpec& spec, const HyenaSpec& mixer, int32_t layer);
void run(Ops& ops, const HyenaSpec& spec, const HyenaWeights& weights, const KvView& kv, Tensor in, Tensor out);
KvShape kv_shape(const HyenaSpec& spec, const KvForm& form);
Result<void> upload_constants(Backend& backend, const SsmSpec& spec, std::span<const Rope> ropes, SsmWeights& weights);
Result<void> upload_constants(Backend& backend, const DecaySpec& spec, std::span<const Rope> ropes,
                              DecayWeights& weights);
Result<void> upload_constants(Backend& backend, const LruSpec& spec, std::span<const Rope> ropes, LruWeights& weights);
int64_t count_constants(const SsmSpec& spec);
int64_t count_constants(const DecaySpec& spec);
TakenRows taken_rows(const DeltaSpec& spec, Take take);
TakenRows taken_rows(const DecaySpec& spec, Take take);

}  // namespace millrace
