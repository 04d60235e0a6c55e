#include "model/forward.h"

namespace millrace {
namespace {

// Some columns of every row.
Tensor columns(Tensor all, int64_t first, int64_t count) {
  all.data += first * static_cast<int64_t>(sizeof(float));
  all.cols = count;
  return all;
}

// Some rows of a matrix: those of one head.
Weight part(const Weight& whole, int64_t index, int64_t rows) {
  Weight some = whole;
  some.rows = rows;
  some.bytes = whole.bytes / whole.rows * rows;
  some.data += index * some.bytes;
  return some;
}

}  // namespace

// Attention over latents without bringing keys and values out of them: what would be multiplied with every key is
// multiplied with the query instead, and values are brought out after they were summed.
void run_mla(Ops& ops, const MlaSpec& spec, const MlaWeights& weights, const KvView& kv, Tensor in, Tensor out) {
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

  Tensor nope = ops.scratch(in.rows, heads * spec.nope_dim), q = ops.scratch(in.rows, heads * entry);
  ops.linear(weights.q_nope, source, nope);
  for (int64_t head = 0; head < heads; ++head) {
    const Tensor turned = columns(q, head * entry + spec.kv_rank, spec.rope_dim);
    ops.linear(part(weights.k_up, head, spec.kv_rank), columns(nope, head * spec.nope_dim, spec.nope_dim),
               columns(q, head * entry, spec.kv_rank));
    ops.linear(part(weights.q_rope, head, spec.rope_dim), source, turned);
    ops.rope(weights.rope, 1, turned);
  }
  Tensor mixed = ops.scratch(in.rows, heads * spec.kv_rank), values = ops.scratch(in.rows, heads * spec.v_dim);
  ops.attend({.heads = spec.heads, .scale = spec.scale}, q, kv, mixed);
  for (int64_t head = 0; head < heads; ++head) {
    ops.linear(part(weights.v_up, head, spec.v_dim), columns(mixed, head * spec.kv_rank, spec.kv_rank),
               columns(values, head * spec.v_dim, spec.v_dim));
  }
  ops.linear(weights.out, values, out);
  ops.restore(start);
}

}  // namespace millrace
