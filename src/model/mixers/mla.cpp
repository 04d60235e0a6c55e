// Multi-head latent attention: the cache keeps one latent vector a token, which all heads read keys and values out of.
#include <algorithm>

#include "model/ffns/ffns.h"
#include "model/limits.h"
#include "model/mixers/mixers.h"

namespace millrace {
namespace {

// The same heads, each from its number `first` on: they lie as far apart as before.
Tensor from(Tensor heads, int64_t first) { return columns(heads, first, heads.cols); }

}  // namespace

void visit(SlotWalk& walk, const MlaSpec& mla, MlaWeights& weights) {
  const int64_t width = walk.spec().width;
  const int64_t heads = mla.heads, source = mla.q_rank > 0 ? mla.q_rank : width;
  if (mla.q_rank > 0) {
    walk.matrix("attn_q_a", mla.q_rank, width, weights.q_down, {});
    walk.norm("attn_q_a_norm", mla.q_rank, mla.norm, weights.q_norm);
  }
  walk.matrix(mla.q_rank > 0 ? "attn_q_b" : "attn_q", heads * (mla.nope_dim + mla.rope_dim), source, weights.q, {});
  walk.matrix("attn_kv_a_mqa", mla.kv_rank + mla.rope_dim, width, weights.kv_down, {});
  walk.norm("attn_kv_a_norm", mla.kv_rank, mla.norm, weights.kv_norm);
  const SlotWalk::Traits each = {.experts = mla.heads, .routed = false};
  walk.matrix("attn_k_b", mla.kv_rank, mla.nope_dim, weights.k_up, each);
  walk.matrix("attn_v_b", mla.v_dim, mla.kv_rank, weights.v_up, each);
  walk.matrix("attn_output", width, heads * mla.v_dim, weights.out, {});
}

Result<void> check(const ModelSpec& spec, const MlaSpec& mla, int32_t) {
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

Result<void> check_runnable(const ModelSpec&, const MlaSpec& mla) {
  // What every backend's attention has room for.
  constexpr int32_t kMostKey = 576, kMostValue = 512, kMostHeads = 128;
  const int32_t key = mla.kv_rank + mla.rope_dim;
  if (key <= kMostKey && mla.kv_rank <= kMostValue && mla.heads <= kMostHeads) return {};
  return error(Code::unsupported,
               "latents of {} numbers, {} of them values, for {} heads: at most {}, {} and {} can be run", key,
               mla.kv_rank, mla.heads, kMostKey, kMostValue, kMostHeads);
}

// Attention over latents without bringing keys and values out of them: what would be multiplied with every key is
// multiplied with the query instead, and values are brought out after they were summed.
void run(Ops& ops, const MlaSpec& spec, const MlaWeights& weights, const KvView& kv, Tensor in, Tensor out) {
  const int64_t start = ops.mark(), heads = spec.heads, entry = spec.kv_rank + spec.rope_dim;
  Tensor source = in;
  if (weights.q_down) {
    source = ops.scratch(in.rows, spec.q_rank);
    ops.linear(weights.q_down, in, source);
    ops.norm(weights.q_norm, 1, source, source);
  }
  Tensor latent = ops.scratch(in.rows, entry);
  ops.linear(weights.kv_down, in, latent);
  ops.norm(weights.kv_norm, 1, columns(latent, 0, spec.kv_rank), columns(latent, 0, spec.kv_rank));
  ops.rope(weights.rope, 1, columns(latent, spec.kv_rank, spec.rope_dim));
  ops.kv_store(latent, columns(latent, 0, 0), kv);

  Tensor apart = ops.scratch(in.rows, heads * (spec.nope_dim + spec.rope_dim)), q = ops.scratch(in.rows, heads * entry);
  ops.linear(weights.q, source, apart);
  ops.rope(weights.rope, spec.heads, from(apart, spec.nope_dim));
  ops.linear_heads(weights.k_up, apart, q);
  ops.copy_heads(spec.heads, spec.rope_dim, from(apart, spec.nope_dim), from(q, spec.kv_rank));
  Tensor mixed = ops.scratch(in.rows, heads * spec.kv_rank), values = ops.scratch(in.rows, heads * spec.v_dim);
  ops.attend({.heads = spec.heads, .scale = spec.scale, .value_dim = spec.kv_rank}, q, kv, mixed);
  ops.linear_heads(weights.v_up, mixed, values);
  ops.linear(weights.out, values, out);
  ops.restore(start);
}

KvShape kv_shape(const MlaSpec& mla, const KvForm& form) {
  return {.kv_heads = 1, .k_dim = mla.kv_rank + mla.rope_dim, .v_dim = 0, .form = form};
}

Result<void> upload_constants(Backend&, const MlaSpec& mla, std::span<const Rope> ropes, MlaWeights& weights) {
  weights.rope = ropes[static_cast<size_t>(mla.rope)];
  return {};
}

// Keys and values out of the latent lie together, those of one head after another.
TakenRows taken_rows(const MlaSpec& mla, Take take) {
  const int64_t each = int64_t{mla.nope_dim} + mla.v_dim;
  TakenRows taken = {.stored = mla.heads * each, .rows = {}, .each = each};
  const int64_t first = take == Take::latent_k ? 0 : mla.nope_dim;
  for (int64_t i = 0; i < (take == Take::latent_k ? mla.nope_dim : mla.v_dim); ++i) taken.rows.push_back(first + i);
  return taken;
}

// Files of MiniCPM3 keep keys and values of heads, as if every head had its own; others keep what is absorbed.
void put_keys(GgufKeys& keys, const ModelSpec&, const LayerSpec&, const MlaSpec& mla) {
  const bool expanded = keys.architecture() == "minicpm3";
  keys.put("attention.head_count", mla.heads);
  keys.put("attention.head_count_kv", expanded ? mla.heads : 1);
  if (mla.q_rank > 0) keys.put("attention.q_lora_rank", mla.q_rank);
  keys.put("attention.kv_lora_rank", mla.kv_rank);
  keys.put("attention.key_length", expanded ? mla.nope_dim + mla.rope_dim : mla.kv_rank + mla.rope_dim);
  keys.put("attention.value_length", expanded ? mla.v_dim : mla.kv_rank);
  if (expanded) return;
  keys.put("attention.key_length_mla", mla.nope_dim + mla.rope_dim);
  keys.put("attention.value_length_mla", mla.v_dim);
}

std::string_view unsayable(const MlaSpec&, std::string_view) { return {}; }

void settle_biases(MlaSpec&, const Checkpoint&, int32_t) {}

Result<void> shard(MlaSpec& mla, int32_t ranks) {
  TRY_VOID(check_divides("attention heads", mla.heads, ranks));
  mla.heads /= ranks;  // the latent is every device's
  return {};
}

}  // namespace millrace
