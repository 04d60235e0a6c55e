// The Ops of a rank (ranks/ranks.h): products of this rank's outputs, attention of its heads, written where they belong
// in the whole row, and then gathered. Everything else every rank computes for itself: it is little, and gives the same
// bits everywhere. After every op every rank has all of every row.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/comm.h"
#include "backend/ranks/ranks.h"
#include "backend/ranks/share.h"
#include "backend/ranks/staged.h"

namespace millrace {

class RankOps final : public Ops {
 public:
  // The comm outlives it. Without routes the host cannot read who has which expert: where nothing is computed.
  RankOps(std::unique_ptr<Ops> inner, Comm& comm, RankCut cut, bool routes = true);

  void begin(const Step& step) override { inner_->begin(step); }
  Tensor scratch(int64_t rows, int64_t cols) override { return inner_->scratch(rows, cols); }
  int64_t mark() override { return inner_->mark(); }
  void restore(int64_t mark) override { inner_->restore(mark); }
  std::string fetch(Tensor rows, float* numbers, int32_t* best) override { return inner_->fetch(rows, numbers, best); }
  std::string fetch_shortlist(Tensor rows, const ShortlistBatch& batch, float* numbers) override {
    return inner_->fetch_shortlist(rows, batch, numbers);
  }

  // ---- in parts
  void embed(const Weight& table, const int32_t* ids, int32_t offset, float scale, bool add, Tensor out) override;
  void linear(const Weight& weight, Tensor in, Tensor out) override;
  void linear_glu(const Weight& gate, const Weight& up, Activation activation, Tensor in, Tensor out) override;
  void linear_qkv(const Weight& q, const Weight& k, const Weight& v, Tensor in, Tensor q_out, Tensor k_out,
                  Tensor v_out) override;
  void linear_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in, Tensor out) override;
  void linear_experts_glu(const Weight& gate, const Weight& up, Activation activation, const GluLimit& limit,
                          const Routing& routing, ExpertInput input, Tensor in, Tensor out) override;
  void linear_heads(const Weight& weight, Tensor in, Tensor out) override;
  void kv_store(Tensor k, Tensor v, const KvView& kv) override;
  void attend(const Attention& attention, Tensor q, const KvView& kv, Tensor out) override;
  void finish_qkv(const QkvFinish& finish, int32_t heads, Tensor q, Tensor k, Tensor v, const KvView& kv) override;

  // ---- by every rank
  void norm(const Norm& norm, int32_t parts, Tensor in, Tensor out) override { inner_->norm(norm, parts, in, out); }
  void activate(Activation activation, Tensor in, Tensor out) override { inner_->activate(activation, in, out); }
  void glu(Activation activation, Tensor gate, Tensor up, Tensor out) override {
    inner_->glu(activation, gate, up, out);
  }
  void add(Tensor in, float scale, Tensor out) override { inner_->add(in, scale, out); }
  void add_norm(Tensor in, float scale, Tensor inout, const Norm& norm, Tensor out) override {
    inner_->add_norm(in, scale, inout, norm, out);
  }
  void clamp(float limit, Tensor inout) override { inner_->clamp(limit, inout); }
  void rope(const Rope& rope, int32_t heads, Tensor inout) override { inner_->rope(rope, heads, inout); }
  void gather(const int32_t* rows, Tensor in, Tensor out) override { inner_->gather(rows, in, out); }
  void finish_logits(float scale, float softcap, Tensor inout) override {
    inner_->finish_logits(scale, softcap, inout);
  }
  void route(const Router& router, Tensor logits, const Routing& routing) override {
    first_known_ = false;
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
  // Runs what writes this rank's columns of `whole`.
  template <class F>
  void write_part(Tensor whole, F&& write, int32_t heads_per_key = 0) {
    if (reach_ != nullptr) reach_->begin_part(whole, heads_per_key);
    write();
    if (reach_ != nullptr) reach_->end_part();
  }
  bool cut(const Weight& weight) const { return is_cut(weight.rows, ranks_); }
  bool whole_experts(const Weight& weight) const { return whole_ && has_whole_experts(weight.experts, ranks_); }
  Weight own_experts(const Weight& weight) const;
  Routing own_pairs(const Routing& routing) const;
  const int32_t* first_pairs(const Routing& routing);
  void gather_pairs(const Routing& routing, Tensor out);
  Weight own(const Weight& weight) const;
  Tensor own(const Weight& weight, Tensor out) const;  // its columns of what the product gives
  void gather_outputs(int64_t rows, int64_t parts, Tensor out);
  HeadShare share(int32_t heads, int32_t kv_heads, int rank) const { return head_share(heads, kv_heads, ranks_, rank); }
  int32_t& all_kv_heads(const KvView& kv);  // of the layer whose keys lie there
  void add_shared(Tensor tensor, int64_t parts, int64_t rows);
  void gather_shared();

  std::unique_ptr<Ops> inner_;
  Comm& comm_;
  Reach* reach_;                       // of inner_, if the host does not read its rows
  std::optional<StagedMoves> staged_;  // then
  int rank_, ranks_;
  bool whole_, routes_;                  // experts are whole; the host knows who has which
  std::array<SharedColumns, 3> shared_;  // of the gathering at hand, with what they point to
  std::array<std::vector<int64_t>, 3> begins_;
  size_t used_ = 0;
  std::vector<int32_t> owners_;
  std::vector<int32_t> first_;  // of the routing at hand, for the host
  bool first_known_ = false;
  std::map<std::pair<int32_t, int64_t>, int32_t> all_kv_heads_;  // by group and offset, since they were last stored
};

}  // namespace millrace
