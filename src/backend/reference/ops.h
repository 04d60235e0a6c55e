// The operations of the reference backend; see reference.h.
#pragma once

#include <vector>

#include "backend/memory.h"
#include "backend/ops.h"

namespace millrace {

class ReferenceOps final : public Ops {
 public:
  explicit ReferenceOps(Arena arena) : arena_(arena) {}

  void begin(const Step& step) override;
  Tensor scratch(int64_t rows, int64_t cols) override { return arena_.rows(rows, cols); }
  int64_t mark() override { return arena_.mark(); }
  void restore(int64_t mark) override { arena_.restore(mark); }

  void embed(const Weight& table, const int32_t* ids, int32_t offset, float scale, bool add, Tensor out) override;
  void norm(const Norm& norm, int32_t parts, Tensor in, Tensor out) override;
  void linear(const Weight& weight, Tensor in, Tensor out) override;
  void activate(Activation activation, Tensor in, Tensor out) override;
  void glu(Activation activation, Tensor gate, Tensor up, Tensor out) override;
  void add(Tensor in, float scale, Tensor out) override;
  void clamp(float limit, Tensor inout) override;
  void rope(const Rope& rope, int32_t heads, Tensor inout) override;
  void kv_store(Tensor k, Tensor v, const KvView& kv) override;
  void attend(const Attention& attention, Tensor q, const KvView& kv, Tensor out) override;
  void gather(const int32_t* rows, Tensor in, Tensor out) override;
  void finish_logits(float scale, float softcap, Tensor inout) override;
  void route(const Router& router, Tensor logits, const Routing& routing) override;
  void linear_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in, Tensor out) override;
  void glu_limited(const GluLimit& limit, Tensor gate, Tensor up, Tensor out) override;
  void spread(const Routing& routing, Tensor in, Tensor out) override;
  void combine(const Routing& routing, bool weighted, Tensor in, Tensor out) override;
  void add_gated(Tensor in, Tensor gate, Tensor out) override;
  void scale_by_position(const PositionScale& scale, Tensor inout) override;
  void convolve(const Convolution& convolution, Tensor in, const StateView& state, Tensor out) override;
  void scan_heads(const HeadScan& scan, const HeadScanRows& in, const StateView& state, Tensor out) override;
  void scan_channels(const ChannelScan& scan, const ChannelScanRows& in, const StateView& state, Tensor out) override;

 private:
  Arena arena_;
  const Step* step_ = nullptr;
};

}  // namespace millrace
