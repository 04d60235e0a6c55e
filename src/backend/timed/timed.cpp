#include "backend/timed/timed.h"

#include "base/check.h"

namespace millrace {

CallOps::CallOps(std::unique_ptr<Ops> inner) : inner_(std::move(inner)), start_(Clock::now()) {}

Cost CallOps::cost(const OpCall& call) const {
  Cost cost;
  for (const TraceRecord& record : records(call)) cost += record.cost;
  return cost;
}

void CallOps::clear() {
  trace_.clear();
  calls_.clear();
  steps_.clear();
  adopted_.clear();
  routed_.clear();
  start_ = Clock::now();
}

template <class F>
void CallOps::call(OpCall entry, F&& what) {
  entry.step = static_cast<int32_t>(steps_.size()) - 1;
  if (inner_) {
    const auto begin = Clock::now();
    what(*inner_);
    const auto end = Clock::now();
    entry.begin = std::chrono::duration<double>(begin - start_).count();
    entry.seconds = std::chrono::duration<double>(end - begin).count();
  } else {
    entry.first = trace_.records().size();
    what(trace_);
    entry.end = trace_.records().size();
  }
  calls_.push_back(entry);
}

void CallOps::begin(const Step& step) {
  CalledStep& called = steps_.emplace_back();
  called.first_call = calls_.size();
  int32_t next = 0;  // of the wanted rows, which ascend
  for (int32_t s = 0; s < step.sequences; ++s) {
    const int32_t first = step.first_row[s], end = step.first_row[s + 1];
    SequenceRows rows = {.begin = step.positions[first], .count = end - first};
    for (; next < step.wanted && step.wanted_rows[next] < end; ++next) ++rows.wanted;
    called.sequences.push_back(rows);
  }
  inner_ ? inner_->begin(step) : trace_.begin(step);
}

void CallOps::adopt(size_t step, const CallOps& counted) {
  const size_t first = steps_[step].first_call;
  const size_t end = step + 1 < steps_.size() ? steps_[step + 1].first_call : calls_.size();
  CHECK(end - first == counted.calls().size(), "{} timed calls, {} counted", end - first, counted.calls().size());
  for (size_t i = first; i < end; ++i) {
    const auto records = counted.records(counted.calls()[i - first]);
    CHECK(calls_[i].op == counted.calls()[i - first].op, "the same calls in the same order");
    calls_[i].first = adopted_.size();
    adopted_.insert(adopted_.end(), records.begin(), records.end());
    calls_[i].end = adopted_.size();
  }
}

Tensor CallOps::scratch(int64_t rows, int64_t cols) {
  return inner_ ? inner_->scratch(rows, cols) : trace_.scratch(rows, cols);
}

void CallOps::embed(const Weight& table, const int32_t* ids, int32_t offset, float scale, bool add, Tensor out) {
  call({.op = "embed", .subject = &table, .type = table.type, .rows = out.rows},
       [&](Ops& ops) { ops.embed(table, ids, offset, scale, add, out); });
}

void CallOps::norm(const Norm& norm, int32_t parts, Tensor in, Tensor out) {
  call({.op = "norm", .subject = &norm, .rows = out.rows}, [&](Ops& ops) { ops.norm(norm, parts, in, out); });
}

void CallOps::linear(const Weight& weight, Tensor in, Tensor out) {
  call({.op = "linear", .subject = &weight, .type = weight.type, .rows = out.rows},
       [&](Ops& ops) { ops.linear(weight, in, out); });
}

void CallOps::activate(Activation activation, Tensor in, Tensor out) {
  call({.op = "activate", .rows = out.rows}, [&](Ops& ops) { ops.activate(activation, in, out); });
}

void CallOps::glu(Activation activation, Tensor gate, Tensor up, Tensor out) {
  call({.op = "glu", .rows = out.rows}, [&](Ops& ops) { ops.glu(activation, gate, up, out); });
}

void CallOps::add(Tensor in, float scale, Tensor out) {
  call({.op = "add", .rows = out.rows}, [&](Ops& ops) { ops.add(in, scale, out); });
}

void CallOps::clamp(float limit, Tensor inout) {
  call({.op = "clamp", .rows = inout.rows}, [&](Ops& ops) { ops.clamp(limit, inout); });
}

void CallOps::rope(const Rope& rope, int32_t heads, Tensor inout) {
  call({.op = "rope", .rows = inout.rows}, [&](Ops& ops) { ops.rope(rope, heads, inout); });
}

void CallOps::kv_store(Tensor k, Tensor v, const KvView& kv) {
  call({.op = "kv_store", .type = kv.form.k, .rows = k.rows}, [&](Ops& ops) { ops.kv_store(k, v, kv); });
}

void CallOps::attend(const Attention& attention, Tensor q, const KvView& kv, Tensor out) {
  call({.op = "attend", .type = kv.form.k, .rows = out.rows}, [&](Ops& ops) { ops.attend(attention, q, kv, out); });
}

void CallOps::gather(const int32_t* rows, Tensor in, Tensor out) {
  call({.op = "gather", .rows = out.rows}, [&](Ops& ops) { ops.gather(rows, in, out); });
}

void CallOps::finish_logits(float scale, float softcap, Tensor inout) {
  call({.op = "finish_logits", .rows = inout.rows}, [&](Ops& ops) { ops.finish_logits(scale, softcap, inout); });
}

void CallOps::route(const Router& router, Tensor logits, const Routing& routing) {
  call({.op = "route", .rows = logits.rows}, [&](Ops& ops) { ops.route(router, logits, routing); });
  if (!inner_ || !notes_routes_) return;
  RoutedCall& routed = routed_.emplace_back();
  routed.call = calls_.size() - 1;
  for (int32_t e = 0; e < routing.experts; ++e) routed.rows.push_back(routing.first[e + 1] - routing.first[e]);
}

void CallOps::linear_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in, Tensor out) {
  call({.op = "linear_experts", .subject = &weight, .type = weight.type, .rows = out.rows},
       [&](Ops& ops) { ops.linear_experts(weight, routing, input, in, out); });
}

void CallOps::copy_heads(int32_t heads, int64_t width, Tensor in, Tensor out) {
  call({.op = "copy_heads", .rows = out.rows}, [&](Ops& ops) { ops.copy_heads(heads, width, in, out); });
}

void CallOps::scale(const float* factors, int64_t count, Tensor inout) {
  call({.op = "scale", .rows = inout.rows}, [&](Ops& ops) { ops.scale(factors, count, inout); });
}

void CallOps::mix(Tensor factors, float more, int32_t ins, int32_t outs, Tensor in, Tensor out) {
  call({.op = "mix", .rows = out.rows}, [&](Ops& ops) { ops.mix(factors, more, ins, outs, in, out); });
}

void CallOps::match_rms(Tensor like, Tensor inout) {
  call({.op = "match_rms", .rows = inout.rows}, [&](Ops& ops) { ops.match_rms(like, inout); });
}

void CallOps::sparsify(float deviations, Tensor inout) {
  call({.op = "sparsify", .rows = inout.rows}, [&](Ops& ops) { ops.sparsify(deviations, inout); });
}

void CallOps::pool(Pooling pooling, const Step& step, Tensor in, Tensor out) {
  call({.op = "pool", .rows = in.rows}, [&](Ops& ops) { ops.pool(pooling, step, in, out); });
}

void CallOps::linear_heads(const Weight& weight, Tensor in, Tensor out) {
  call({.op = "linear_heads", .subject = &weight, .type = weight.type, .rows = out.rows},
       [&](Ops& ops) { ops.linear_heads(weight, in, out); });
}

void CallOps::linear_delta(const RowDeltas& deltas, Tensor in, Tensor inout) {
  call({.op = "linear_delta", .subject = deltas.listed, .rows = inout.rows},
       [&](Ops& ops) { ops.linear_delta(deltas, in, inout); });
}

void CallOps::glu_limited(const GluLimit& limit, Tensor gate, Tensor up, Tensor out) {
  call({.op = "glu_limited", .rows = out.rows}, [&](Ops& ops) { ops.glu_limited(limit, gate, up, out); });
}

void CallOps::spread(const Routing& routing, Tensor in, Tensor out) {
  call({.op = "spread", .rows = out.rows}, [&](Ops& ops) { ops.spread(routing, in, out); });
}

void CallOps::combine(const Routing& routing, bool weighted, Tensor in, Tensor out) {
  call({.op = "combine", .rows = out.rows}, [&](Ops& ops) { ops.combine(routing, weighted, in, out); });
}

void CallOps::add_gated(Tensor in, Tensor gate, Tensor out) {
  call({.op = "add_gated", .rows = out.rows}, [&](Ops& ops) { ops.add_gated(in, gate, out); });
}

void CallOps::scale_by_position(const PositionScale& scale, Tensor inout) {
  call({.op = "scale_by_position", .rows = inout.rows}, [&](Ops& ops) { ops.scale_by_position(scale, inout); });
}

void CallOps::convolve(const Convolution& convolution, Tensor in, const StateView& state, Tensor out) {
  call({.op = "convolve", .rows = out.rows}, [&](Ops& ops) { ops.convolve(convolution, in, state, out); });
}

void CallOps::scan_heads(const HeadScan& scan, const HeadScanRows& in, const StateView& state, Tensor out) {
  call({.op = "scan_heads", .rows = out.rows}, [&](Ops& ops) { ops.scan_heads(scan, in, state, out); });
}

void CallOps::scan_channels(const ChannelScan& scan, const ChannelScanRows& in, const StateView& state, Tensor out) {
  call({.op = "scan_channels", .rows = out.rows}, [&](Ops& ops) { ops.scan_channels(scan, in, state, out); });
}

void CallOps::linear_experts_glu(const Weight& gate, const Weight& up, Activation activation, const GluLimit& limit,
                                 const Routing& routing, ExpertInput input, Tensor in, Tensor out) {
  call({.op = "linear_experts_glu", .subject = &gate, .type = gate.type, .rows = out.rows},
       [&](Ops& ops) { ops.linear_experts_glu(gate, up, activation, limit, routing, input, in, out); });
}

void CallOps::add_norm(Tensor in, float scale, Tensor inout, const Norm& norm, Tensor out) {
  call({.op = "add_norm", .subject = &norm, .rows = out.rows},
       [&](Ops& ops) { ops.add_norm(in, scale, inout, norm, out); });
}

void CallOps::linear_glu(const Weight& gate, const Weight& up, Activation activation, Tensor in, Tensor out) {
  call({.op = "linear_glu", .subject = &gate, .type = gate.type, .rows = out.rows},
       [&](Ops& ops) { ops.linear_glu(gate, up, activation, in, out); });
}

void CallOps::linear_qkv(const Weight& q, const Weight& k, const Weight& v, Tensor in, Tensor q_out, Tensor k_out,
                         Tensor v_out) {
  call({.op = "linear_qkv", .subject = &q, .type = q.type, .rows = q_out.rows},
       [&](Ops& ops) { ops.linear_qkv(q, k, v, in, q_out, k_out, v_out); });
}

void CallOps::finish_qkv(const QkvFinish& finish, int32_t heads, Tensor q, Tensor k, Tensor v, const KvView& kv) {
  call({.op = "finish_qkv", .type = kv.form.k, .rows = q.rows},
       [&](Ops& ops) { ops.finish_qkv(finish, heads, q, k, v, kv); });
}

Result<std::unique_ptr<Ops>> TimedBackend::make_ops(int64_t workspace_bytes) {
  TRY(auto ops, inner_.make_ops(workspace_bytes));
  auto timed = std::make_unique<CallOps>(std::move(ops));
  calls_ = timed.get();
  if (!inner_.apart()) calls_->note_routes();
  return std::unique_ptr<Ops>(std::move(timed));
}

}  // namespace millrace
