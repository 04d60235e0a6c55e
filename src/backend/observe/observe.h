// Observed calls: an Ops over another that shows somebody what every product of the network read, and the stream after
// every addition; and a backend whose Ops are such. Compositions take their bodies made of primitives, so that no
// product passes unseen. Only over backends whose rows the host reads. One thread.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace millrace {

// Who is shown. Rows last until the call returns.
class Watcher {
 public:
  virtual ~Watcher() = default;
  // What a product is to read instead of its inputs; rows of the watcher's own, or `in` itself.
  virtual Tensor instead(const Weight& weight, Tensor in) {
    static_cast<void>(weight);
    return in;
  }
  // out = in * weight^T + bias was computed.
  virtual void product(const Weight& weight, Tensor in, Tensor out) = 0;
  // The same of experts: pairs of expert e read row (input rows) routing.row[p] or (pairs) p of `in`.
  virtual void product_of_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in) = 0;
  virtual void added(Tensor in, Tensor sum) = 0;  // sum += scale * in was computed
};

class ObservedOps final : public Ops {
 public:
  ObservedOps(std::unique_ptr<Ops> inner, Watcher& watcher) : inner_(std::move(inner)), watcher_(watcher) {}

  void begin(const Step& step) override { inner_->begin(step); }
  Tensor scratch(int64_t rows, int64_t cols) override { return inner_->scratch(rows, cols); }
  int64_t mark() override { return inner_->mark(); }
  void restore(int64_t mark) override { inner_->restore(mark); }

  void linear(const Weight& weight, Tensor in, Tensor out) override {
    const Tensor read = watcher_.instead(weight, in);
    inner_->linear(weight, read, out);
    watcher_.product(weight, read, out);
  }
  void linear_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in, Tensor out) override {
    const Tensor read = watcher_.instead(weight, in);
    inner_->linear_experts(weight, routing, input, read, out);
    watcher_.product_of_experts(weight, routing, input, read);
  }
  void add(Tensor in, float scale, Tensor out) override {
    inner_->add(in, scale, out);
    watcher_.added(in, out);
  }

  void embed(const Weight& table, const int32_t* ids, int32_t offset, float scale, bool add, Tensor out) override {
    inner_->embed(table, ids, offset, scale, add, out);
  }
  void norm(const Norm& norm, int32_t parts, Tensor in, Tensor out) override { inner_->norm(norm, parts, in, out); }
  void activate(Activation activation, Tensor in, Tensor out) override { inner_->activate(activation, in, out); }
  void glu(Activation activation, Tensor gate, Tensor up, Tensor out) override {
    inner_->glu(activation, gate, up, out);
  }
  void clamp(float limit, Tensor inout) override { inner_->clamp(limit, inout); }
  void rope(const Rope& rope, int32_t heads, Tensor inout) override { inner_->rope(rope, heads, inout); }
  void kv_store(Tensor k, Tensor v, const KvView& kv) override { inner_->kv_store(k, v, kv); }
  void attend(const Attention& attention, Tensor q, const KvView& kv, Tensor out) override {
    inner_->attend(attention, q, kv, out);
  }
  void gather(const int32_t* rows, Tensor in, Tensor out) override { inner_->gather(rows, in, out); }
  void finish_logits(float scale, float softcap, Tensor inout) override {
    inner_->finish_logits(scale, softcap, inout);
  }
  void route(const Router& router, Tensor logits, const Routing& routing) override {
    inner_->route(router, logits, routing);
  }
  void glu_limited(const GluLimit& limit, Tensor gate, Tensor up, Tensor out) override {
    inner_->glu_limited(limit, gate, up, out);
  }
  void spread(const Routing& routing, Tensor in, Tensor out) override { inner_->spread(routing, in, out); }
  void combine(const Routing& routing, bool weighted, Tensor in, Tensor out) override {
    inner_->combine(routing, weighted, in, out);
  }
  void add_gated(Tensor in, Tensor gate, Tensor out) override { inner_->add_gated(in, gate, out); }
  void scale_by_position(const PositionScale& scale, Tensor inout) override { inner_->scale_by_position(scale, inout); }
  void convolve(const Convolution& convolution, Tensor in, const StateView& state, Tensor out) override {
    inner_->convolve(convolution, in, state, out);
  }
  void scan_heads(const HeadScan& scan, const HeadScanRows& in, const StateView& state, Tensor out) override {
    inner_->scan_heads(scan, in, state, out);
  }
  void scan_channels(const ChannelScan& scan, const ChannelScanRows& in, const StateView& state, Tensor out) override {
    inner_->scan_channels(scan, in, state, out);
  }
  void copy_heads(int32_t heads, int64_t width, Tensor in, Tensor out) override {
    inner_->copy_heads(heads, width, in, out);
  }
  void scale(const float* factors, int64_t count, Tensor inout) override { inner_->scale(factors, count, inout); }
  void mix(Tensor factors, float more, int32_t ins, int32_t outs, Tensor in, Tensor out) override {
    inner_->mix(factors, more, ins, outs, in, out);
  }
  void match_rms(Tensor like, Tensor inout) override { inner_->match_rms(like, inout); }
  void sparsify(float deviations, Tensor inout) override { inner_->sparsify(deviations, inout); }
  void pool(Pooling pooling, const Step& step, Tensor in, Tensor out) override { inner_->pool(pooling, step, in, out); }

 private:
  std::unique_ptr<Ops> inner_;
  Watcher& watcher_;
};

// Everything is the other backend's, but its Ops are observed. The other and the watcher outlive it.
class ObservedBackend final : public Backend {
 public:
  ObservedBackend(Backend& inner, Watcher& watcher) : inner_(inner), watcher_(watcher) {}

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
  // Refused on a machine apart: nobody here could read what passes.
  Result<std::unique_ptr<Ops>> make_ops(int64_t workspace_bytes) override {
    if (inner_.apart())
      return error(Code::unsupported, "what products read cannot be watched on {}; use --device cpu",
                   inner_.description());
    TRY(auto ops, inner_.make_ops(workspace_bytes));
    return std::unique_ptr<Ops>(std::make_unique<ObservedOps>(std::move(ops), watcher_));
  }
  bool has_latents() const override { return inner_.has_latents(); }
  bool has_streams() const override { return inner_.has_streams(); }
  bool has_states() const override { return inner_.has_states(); }

 private:
  Backend& inner_;
  Watcher& watcher_;
};

}  // namespace millrace
