// Timed calls: an Ops over another that notes how long every call of forward() took, and a backend whose Ops are such.
// Compositions count as the one call they are, so what a backend fuses is timed fused. Without an Ops below, it notes
// what every call costs instead, as trace counts it; the same passes counted afterwards give timed calls their costs
// (adopt), so that counting is not in the way of the clock. Whoever does not ask for times has nothing of this: it
// takes an executor made on a TimedBackend. One thread.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "backend/trace/trace.h"

namespace millrace {

// What a step computed of each sequence.
struct SequenceRows {
  int32_t begin = 0, count = 0, wanted = 0;
};

struct CalledStep {
  std::vector<SequenceRows> sequences;
  size_t first_call = 0;
};

struct OpCall {
  std::string_view op;            // "linear_glu"
  const void* subject = nullptr;  // the Weight or Norm it was called with (the first), to tell whose it is; or null
  DType type = DType::f32;        // of weights or cache; f32 where only activations take part
  int64_t rows = 0;
  int32_t step = 0;               // counted from 0
  size_t first = 0, end = 0;      // its records
  double begin = 0, seconds = 0;  // since the CallOps was made or cleared; 0 without an Ops below
};

// How many rows a call of route gave each expert.
struct RoutedCall {
  size_t call = 0;  // which of the calls it was
  std::vector<int32_t> rows;
};

class CallOps final : public Ops {
 public:
  explicit CallOps(std::unique_ptr<Ops> inner);  // null: costs only

  const std::vector<OpCall>& calls() const { return calls_; }
  const std::vector<RoutedCall>& routed() const { return routed_; }
  void note_routes() { notes_routes_ = true; }  // of an Ops below whose memory the host reads
  const std::vector<CalledStep>& steps() const { return steps_; }
  const std::vector<TraceRecord>& records() const { return inner_ ? adopted_ : trace_.records(); }
  std::span<const TraceRecord> records(const OpCall& call) const {
    return std::span(records()).subspan(call.first, call.end - call.first);
  }
  // Gives the calls of a timed step the costs of the same step, counted.
  void adopt(size_t step, const CallOps& counted);
  Cost cost(const OpCall& call) const;
  void clear();  // forgets calls, and time begins anew
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  void begin(const Step& step) override;
  Tensor scratch(int64_t rows, int64_t cols) override;
  int64_t mark() override { return inner_ ? inner_->mark() : trace_.mark(); }
  void restore(int64_t mark) override { inner_ ? inner_->restore(mark) : trace_.restore(mark); }

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
  void linear_experts_glu(const Weight& gate, const Weight& up, Activation activation, const GluLimit& limit,
                          const Routing& routing, ExpertInput input, Tensor in, Tensor out) override;
  void add_norm(Tensor in, float scale, Tensor inout, const Norm& norm, Tensor out) override;
  void copy_heads(int32_t heads, int64_t width, Tensor in, Tensor out) override;
  void scale(const float* factors, int64_t count, Tensor inout) override;
  void mix(Tensor factors, float more, int32_t ins, int32_t outs, Tensor in, Tensor out) override;
  void match_rms(Tensor like, Tensor inout) override;
  void sparsify(float deviations, Tensor inout) override;
  void pool(Pooling pooling, const Step& step, Tensor in, Tensor out) override;
  void linear_heads(const Weight& weight, Tensor in, Tensor out) override;
  void linear_delta(const RowDeltas& deltas, Tensor in, Tensor inout) override;
  void linear_glu(const Weight& gate, const Weight& up, Activation activation, Tensor in, Tensor out) override;
  void linear_qkv(const Weight& q, const Weight& k, const Weight& v, Tensor in, Tensor q_out, Tensor k_out,
                  Tensor v_out) override;
  void finish_qkv(const QkvFinish& finish, int32_t heads, Tensor q, Tensor k, Tensor v, const KvView& kv) override;

 private:
  using Clock = std::chrono::steady_clock;
  // Does `what` on the Ops below, timed, or else on trace.
  template <class F>
  void call(OpCall entry, F&& what);

  std::unique_ptr<Ops> inner_;
  TraceOps trace_;
  std::vector<OpCall> calls_;
  std::vector<CalledStep> steps_;
  std::vector<TraceRecord> adopted_;
  std::vector<RoutedCall> routed_;
  bool notes_routes_ = false;
  Clock::time_point start_;
};

// Everything is the other backend's, but its Ops are timed. The other outlives it.
class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(Backend& inner) : inner_(inner) {}

  CallOps* calls() const { return calls_; }  // of the Ops made last; null before

  std::string description() const override { return inner_.description(); }
  std::string numerics() const override { return inner_.numerics(); }
  int64_t weight_bytes(DType type, int64_t rows, int64_t cols, WeightUse use) const override {
    return inner_.weight_bytes(type, rows, cols, use);
  }
  Result<Weight> upload(const HostMatrix& matrix, WeightUse use, std::span<const float> bias) override {
    return inner_.upload(matrix, use, bias);
  }
  Result<Weight> upload_experts(const HostExperts& experts, std::span<const float> bias) override {
    return inner_.upload_experts(experts, bias);
  }
  Result<const float*> upload_vector(std::span<const float> values) override { return inner_.upload_vector(values); }
  Result<std::byte*> allocate(Purpose purpose, int64_t bytes) override { return inner_.allocate(purpose, bytes); }
  int64_t used(Purpose purpose) const override { return inner_.used(purpose); }
  void set_limit(int64_t bytes) override { inner_.set_limit(bytes); }
  int64_t fixed_workspace() const override { return inner_.fixed_workspace(); }
  Result<std::unique_ptr<Ops>> make_ops(int64_t workspace_bytes) override;

 private:
  Backend& inner_;
  CallOps* calls_ = nullptr;
};

}  // namespace millrace
