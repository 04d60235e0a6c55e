#include "backend/ops.h"

#include "backend/row_math.h"

#include "base/check.h"

namespace millrace {

void Ops::route(const Router&, Tensor, const Routing&) { CHECK(false, "this backend has no experts"); }
void Ops::linear_experts(const Weight&, const Routing&, ExpertInput, Tensor, Tensor) {
  CHECK(false, "this backend has no experts");
}
void Ops::glu_limited(const GluLimit&, Tensor, Tensor, Tensor) { CHECK(false, "this backend has no experts"); }
void Ops::spread(const Routing&, Tensor, Tensor) { CHECK(false, "this backend has no experts"); }
void Ops::combine(const Routing&, bool, Tensor, Tensor) { CHECK(false, "this backend has no experts"); }
void Ops::scale_by_position(const PositionScale&, Tensor) { CHECK(false, "this backend scales nothing by position"); }
void Ops::add_gated(Tensor, Tensor, Tensor) { CHECK(false, "this backend has no experts"); }
void Ops::convolve(const Convolution&, Tensor, const StateView&, Tensor) {
  CHECK(false, "this backend keeps no states");
}
void Ops::scan_heads(const HeadScan&, const HeadScanRows&, const StateView&, Tensor) {
  CHECK(false, "this backend keeps no states");
}
void Ops::scan_channels(const ChannelScan&, const ChannelScanRows&, const StateView&, Tensor) {
  CHECK(false, "this backend keeps no states");
}

Routing Ops::scratch_routing(const Router& router, int64_t rows) {
  // Numbers of four bytes each, whatever they are.
  static_assert(sizeof(float) == sizeof(int32_t));
  const int64_t pairs = rows * router.chosen;
  auto numbers = [&](int64_t count) { return scratch(1, count).data; };
  Routing routing = {.rows = rows, .chosen = router.chosen, .experts = router.experts};
  routing.expert = reinterpret_cast<int32_t*>(numbers(pairs));
  routing.weight = reinterpret_cast<float*>(numbers(pairs));
  routing.place = reinterpret_cast<int32_t*>(numbers(pairs));
  routing.row = reinterpret_cast<int32_t*>(numbers(pairs));
  routing.first = reinterpret_cast<int32_t*>(numbers(router.experts + 1));
  return routing;
}

void Ops::linear_experts_glu(const Weight& gate, const Weight& up, Activation activation, const GluLimit& limit,
                             const Routing& routing, ExpertInput input, Tensor in, Tensor out) {
  int64_t start = mark();
  Tensor gated = scratch(routing.pairs(), gate.rows);
  linear_experts(gate, routing, input, in, gated);
  linear_experts(up, routing, input, in, out);
  limit.limit > 0 ? glu_limited(limit, gated, out, out) : glu(activation, gated, out, out);
  restore(start);
}

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
  if (finish.q_scale.every > 0) scale_by_position(finish.q_scale, q);
  kv_store(k, v, kv);
}

void Ops::copy_heads(int32_t heads, int64_t width, Tensor in, Tensor out) {
  for (int64_t r = 0; r < in.rows; ++r)
    copy_row_heads(heads, width, in.row(r), in.cols / heads, out.row(r), out.cols / heads);
}

void Ops::scale(const float* factors, int64_t count, Tensor inout) {
  for (int64_t r = 0; r < inout.rows; ++r) scale_row(factors, count, inout.row(r), inout.cols);
}

void Ops::mix(Tensor factors, float more, int32_t ins, int32_t outs, Tensor in, Tensor out) {
  for (int64_t r = 0; r < in.rows; ++r) mix_row(factors.row(r), more, ins, outs, in.cols / ins, in.row(r), out.row(r));
}

void Ops::match_rms(Tensor like, Tensor inout) {
  for (int64_t r = 0; r < inout.rows; ++r) match_row(like.row(r), like.cols, inout.row(r), inout.cols);
}

void Ops::sparsify(float deviations, Tensor inout) {
  for (int64_t r = 0; r < inout.rows; ++r) sparsify_row(deviations, inout.row(r), inout.cols);
}

void Ops::pool(Pooling pooling, const Step& step, Tensor in, Tensor out) {
  for (int32_t s = 0; s < step.sequences; ++s)
    pool_rows(pooling, in, step.first_row[s], step.first_row[s + 1], out.row(s));
}

void Ops::linear_delta(const RowDeltas& deltas, Tensor in, Tensor inout) {
  for (int64_t r = 0; r < inout.rows; ++r) {
    if (deltas.adapters[r] < 0 || deltas.changes[deltas.adapters[r]].rank == 0) continue;
    const Delta& delta = deltas.changes[deltas.adapters[r]];
    add_delta_row(delta, deltas.strengths[r], deltas.ids != nullptr ? deltas.ids[r] : -1, in.row(r), in.cols,
                  inout.row(r), inout.cols);
  }
}

void Ops::linear_heads(const Weight& weight, Tensor in, Tensor out) {
  for (int32_t head = 0; head < weight.experts; ++head)
    linear(weight.expert(head), head_of(in, head, weight.experts, weight.cols),
           head_of(out, head, weight.experts, weight.rows));
}

}  // namespace millrace
