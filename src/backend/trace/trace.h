// The trace backend: runs nothing and says what every op costs. forward() under TraceOps yields the workspace plan, the
// roofline and what `explain` prints, so no cost is written down twice. It reads the step's host arrays (positions,
// visible), never data: weights need only type, shape and bytes, and the tensors it hands out must not be touched.
//
// Costs are of the work itself: a weight is read once per op, a cached position once per sequence and op, FLOPs count
// two for a multiply and add. A backend may need more (rereads) or less (fusion); that difference is what benchmarks
// show.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/ops.h"

namespace millrace {

struct Cost {
  int64_t calls = 0;
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;          // read and written
  int64_t activation_bytes = 0;  // read and written
  double flops = 0;

  int64_t bytes() const { return weight_bytes + kv_bytes + activation_bytes; }
  Cost& operator+=(const Cost& other);
};

struct TraceRecord {
  std::string_view op;              // the primitive's name
  DType type = DType::f32;          // of the weight or the cache; f32 where only activations take part
  int64_t rows = 0;                 // of the result
  int64_t inputs = 0, outputs = 0;  // columns in and out
  Cost cost;
};

struct TraceSummary {
  std::map<std::pair<std::string, DType>, Cost> by_op;  // op and format
  Cost total;
  int64_t workspace_bytes = 0;
};

class TraceOps final : public Ops {
 public:
  const std::vector<TraceRecord>& records() const { return records_; }
  TraceSummary summary() const;
  // Room any host backend's Ops needs for the calls seen so far, besides Backend::fixed_workspace(): the highest stack
  // of activations, a float32 copy of an op's input on top of it (as backends prepare inputs), and per-step tables.
  int64_t workspace_bytes() const { return peak_ + peak_tables_; }
  void clear();  // forgets records and peaks

  void begin(const Step& step) override;
  Tensor scratch(int64_t rows, int64_t cols) override;
  int64_t mark() override { return top_; }
  void restore(int64_t mark) override { top_ = mark; }

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
  void copy_heads(int32_t heads, int64_t width, Tensor in, Tensor out) override;
  void scale(const float* factors, int64_t count, Tensor inout) override;
  void mix(Tensor factors, float more, int32_t ins, int32_t outs, Tensor in, Tensor out) override;
  void match_rms(Tensor like, Tensor inout) override;
  void sparsify(float deviations, Tensor inout) override;
  void pool(Pooling pooling, const Step& step, Tensor in, Tensor out) override;
  void linear_heads(const Weight& weight, Tensor in, Tensor out) override;
  void linear_delta(const RowDeltas& deltas, Tensor in, Tensor inout) override;

 private:
  void record(std::string_view op, DType type, int64_t rows, int64_t inputs, int64_t outputs, Cost cost);
  void record_state(std::string_view op, const StateView& state, StateView::Kind part, Cost cost, Tensor in,
                    Tensor out);
  void elementwise(std::string_view op, Tensor in, Tensor out, int64_t tensors_moved, double flops_per_value);

  const Step* step_ = nullptr;
  std::vector<TraceRecord> records_;
  std::vector<const float*> frequency_sets_;  // seen in this step
  int64_t top_ = 0, peak_ = 0, tables_ = 0, peak_tables_ = 0;
};

// A backend whose weights have no data and whose Ops are TraceOps. Weights are sized as `like` would pack them, or as
// the file has them if null. It charges and limits memory like a real one, without taking any.
std::unique_ptr<Backend> make_trace_backend(const Backend* like = nullptr);

}  // namespace millrace
