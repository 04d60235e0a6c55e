// AdaptedOps: an Ops over another for steps in which some rows have adapters: after each product of a matrix that one
// of them changes, it adds the change (Ops::linear_delta). Everything else is the other's, so rows without an adapter
// have the bits they have alone. Joined products stay joined where their parts come out one by one; gate and up do not,
// and are computed as the composition's body says, which gives the same bits. One thread.
#pragma once

#include "backend/ops.h"
#include "model/adapter_set.h"

namespace millrace {

class AdaptedOps final : public Ops {
 public:
  AdaptedOps(Ops& inner, const AdapterSet& adapters) : inner_(inner), adapters_(adapters) {}

  void begin(const Step& step) override;
  Tensor scratch(int64_t rows, int64_t cols) override { return inner_.scratch(rows, cols); }
  int64_t mark() override { return inner_.mark(); }
  void restore(int64_t mark) override { inner_.restore(mark); }

  void embed(const Weight& table, const int32_t* ids, int32_t offset, float scale, bool add, Tensor out) override;
  void norm(const Norm& norm, int32_t parts, Tensor in, Tensor out) override { inner_.norm(norm, parts, in, out); }
  void linear(const Weight& weight, Tensor in, Tensor out) override;
  void activate(Activation activation, Tensor in, Tensor out) override { inner_.activate(activation, in, out); }
  void glu(Activation activation, Tensor gate, Tensor up, Tensor out) override {
    inner_.glu(activation, gate, up, out);
  }
  void add(Tensor in, float scale, Tensor out) override { inner_.add(in, scale, out); }
  void clamp(float limit, Tensor inout) override { inner_.clamp(limit, inout); }
  void rope(const Rope& rope, int32_t heads, Tensor inout) override { inner_.rope(rope, heads, inout); }
  void kv_store(Tensor k, Tensor v, const KvView& kv) override { inner_.kv_store(k, v, kv); }
  void attend(const Attention& attention, Tensor q, const KvView& kv, Tensor out) override {
    inner_.attend(attention, q, kv, out);
  }
  void gather(const int32_t* rows, Tensor in, Tensor out) override { inner_.gather(rows, in, out); }
  void finish_logits(float scale, float softcap, Tensor inout) override { inner_.finish_logits(scale, softcap, inout); }

  void route(const Router& router, Tensor logits, const Routing& routing) override {
    inner_.route(router, logits, routing);
  }
  void linear_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in, Tensor out) override {
    inner_.linear_experts(weight, routing, input, in, out);
  }
  void glu_limited(const GluLimit& limit, Tensor gate, Tensor up, Tensor out) override {
    inner_.glu_limited(limit, gate, up, out);
  }
  void spread(const Routing& routing, Tensor in, Tensor out) override { inner_.spread(routing, in, out); }
  void combine(const Routing& routing, bool weighted, Tensor in, Tensor out) override {
    inner_.combine(routing, weighted, in, out);
  }
  void add_gated(Tensor in, Tensor gate, Tensor out) override { inner_.add_gated(in, gate, out); }
  void scale_by_position(const PositionScale& scale, Tensor inout) override { inner_.scale_by_position(scale, inout); }
  void convolve(const Convolution& convolution, Tensor in, const StateView& state, Tensor out) override {
    inner_.convolve(convolution, in, state, out);
  }
  void scan_heads(const HeadScan& scan, const HeadScanRows& in, const StateView& state, Tensor out) override {
    inner_.scan_heads(scan, in, state, out);
  }
  void scan_channels(const ChannelScan& scan, const ChannelScanRows& in, const StateView& state, Tensor out) override {
    inner_.scan_channels(scan, in, state, out);
  }

  void add_norm(Tensor in, float scale, Tensor inout, const Norm& norm, Tensor out) override {
    inner_.add_norm(in, scale, inout, norm, out);
  }
  void linear_glu(const Weight& gate, const Weight& up, Activation activation, Tensor in, Tensor out) override;
  void linear_experts_glu(const Weight& gate, const Weight& up, Activation activation, const GluLimit& limit,
                          const Routing& routing, ExpertInput input, Tensor in, Tensor out) override {
    inner_.linear_experts_glu(gate, up, activation, limit, routing, input, in, out);
  }
  void linear_qkv(const Weight& q, const Weight& k, const Weight& v, Tensor in, Tensor q_out, Tensor k_out,
                  Tensor v_out) override;
  void finish_qkv(const QkvFinish& finish, int32_t heads, Tensor q, Tensor k, Tensor v, const KvView& kv) override {
    inner_.finish_qkv(finish, heads, q, k, v, kv);
  }

  void copy_heads(int32_t heads, int64_t width, Tensor in, Tensor out) override {
    inner_.copy_heads(heads, width, in, out);
  }
  void scale(const float* factors, int64_t count, Tensor inout) override { inner_.scale(factors, count, inout); }
  void mix(Tensor factors, float more, int32_t ins, int32_t outs, Tensor in, Tensor out) override {
    inner_.mix(factors, more, ins, outs, in, out);
  }
  void match_rms(Tensor like, Tensor inout) override { inner_.match_rms(like, inout); }
  void sparsify(float deviations, Tensor inout) override { inner_.sparsify(deviations, inout); }
  void pool(Pooling pooling, const Step& step, Tensor in, Tensor out) override { inner_.pool(pooling, step, in, out); }
  void linear_heads(const Weight& weight, Tensor in, Tensor out) override { inner_.linear_heads(weight, in, out); }
  void linear_delta(const RowDeltas& deltas, Tensor in, Tensor inout) override {
    inner_.linear_delta(deltas, in, inout);
  }

 private:
  // What changes a matrix for any row of the step, or, where it is recorded, could; null: nothing does.
  const Delta* changes(const Weight& weight) const;
  void change(const Delta* listed, Tensor in, Tensor out, const int32_t* ids = nullptr);

  Ops& inner_;
  const AdapterSet& adapters_;
  const Step* step_ = nullptr;
  std::vector<int32_t> present_;  // adapters of the step
  bool recorded_ = false;         // the step
};

}  // namespace millrace
