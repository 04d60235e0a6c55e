#include "backend/ops.h"

namespace millrace {

void Ops::add_norm(Tensor in, float scale, Tensor inout, const Norm& norm_spec, Tensor out) {
  add(in, scale, inout);
  norm(norm_spec, 1, inout, out);
}

void Ops::linear_glu(const Weight& gate, const Weight& up, Activation activation, Tensor in, Tensor out) {
  int64_t start = mark();
  Tensor gated = scratch(in.rows, gate.rows);
  linear(gate, in, gated);
  linear(up, in, out);
  glu(activation, gated, out, out);
  restore(start);
}

void Ops::linear_qkv(const Weight& q, const Weight& k, const Weight& v, Tensor in, Tensor q_out, Tensor k_out,
                     Tensor v_out) {
  linear(q, in, q_out);
  linear(k, in, k_out);
  linear(v, in, v_out);
}

void Ops::finish_qkv(const QkvFinish& finish, int32_t heads, Tensor q, Tensor k, Tensor v, const KvView& kv) {
  auto normalise = [&] {
    if (finish.q_norm != nullptr) norm(*finish.q_norm, finish.norm_per_head ? heads : 1, q, q);
    if (finish.k_norm != nullptr) norm(*finish.k_norm, finish.norm_per_head ? kv.kv_heads : 1, k, k);
  };
  if (finish.clip > 0) {
    clamp(finish.clip, q);
    clamp(finish.clip, k);
    clamp(finish.clip, v);
  }
  if (!finish.norm_after_rope) normalise();
  if (finish.rope.dims > 0) {
    rope(finish.rope, heads, q);
    rope(finish.rope, kv.kv_heads, k);
  }
  if (finish.norm_after_rope) normalise();
  kv_store(k, v, kv);
}

}  // namespace millrace
