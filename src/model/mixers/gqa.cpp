#include "model/forward.h"

namespace millrace {

void run_gqa(Ops& ops, const GqaSpec& spec, const GqaWeights& weights, const KvView& kv, Tensor in, Tensor out) {
  const int64_t start = ops.mark();
  const int64_t width = int64_t{spec.heads} * spec.head_dim, kv_width = int64_t{spec.kv_heads} * spec.head_dim;
  Tensor q = ops.scratch(in.rows, width);
  if (spec.kv_from < 0) {
    Tensor k = ops.scratch(in.rows, kv_width), v = ops.scratch(in.rows, kv_width);
    ops.linear_qkv(weights.q, weights.k, weights.v, in, q, k, v);
    const QkvFinish finish = {.q_norm = spec.qk_norm ? &weights.q_norm : nullptr,
                              .k_norm = spec.qk_norm ? &weights.k_norm : nullptr,
                              .norm_per_head = spec.qk_norm_per_head,
                              .rope = weights.rope,
                              .norm_after_rope = spec.qk_norm_after_rope,
                              .clip = spec.clip};
    ops.finish_qkv(finish, spec.heads, q, k, v, kv);
  } else {
    ops.linear(weights.q, in, q);
    if (spec.qk_norm) ops.norm(weights.q_norm, spec.qk_norm_per_head ? spec.heads : 1, q, q);
    if (weights.rope.dims > 0) ops.rope(weights.rope, spec.heads, q);
  }
  Tensor mixed = ops.scratch(in.rows, width);
  const Attention attention = {.heads = spec.heads,
                               .scale = spec.scale,
                               .window = spec.window,
                               .softcap = spec.softcap,
                               .slopes = weights.slopes};
  ops.attend(attention, q, kv, mixed);
  if (spec.out_norm) ops.norm(weights.out_norm, 1, mixed, mixed);
  ops.linear(weights.out, mixed, out);
  ops.restore(start);
}

}  // namespace millrace
