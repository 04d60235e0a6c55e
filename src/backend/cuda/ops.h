// The operations of the CUDA backend: decides which kernel computes what, in which form activations lie, and joins
// calls that one kernel can do together. Calls only queue work; fetch() waits for what it brings. A step of single
// tokens is recorded the first time a number of sequences is seen, if repeat() was asked about it, and replayed from
// then on.
//
// Some calls are held back until the next ones show what they are for (held.h); flush() does what is held back.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/cuda/device.h"
#include "backend/cuda/family.h"
#include "backend/cuda/held.h"
#include "backend/cuda/kernels.h"
#include "backend/memory.h"
#include "backend/ops.h"
#include "backend/reach.h"

namespace millrace::cuda {

inline constexpr int64_t kPartialBytes = int64_t{256}
                                         << 20;  // of attention's chunks, or of quantised weights made bfloat16
inline constexpr int32_t kMostSequences = 4096;
inline constexpr int32_t kMostHeadsPerKey = 16;                               // that attend_fits() allows
inline constexpr int64_t kFinishedBytes = int64_t{kMostSequences} * 128 * 4;  // attention's counters
inline constexpr int64_t kFixedBytes = kPartialBytes + kFinishedBytes + kStretchBytes + kMostSequences * 16;
inline constexpr int32_t kMostLinked = 16;                    // rows of a text that may be sequences of their own
inline constexpr int32_t kNoBest = INT32_MIN;                 // a best token is -1 or more
inline constexpr int64_t kPinnedBytes = kMostSequences * 16;  // of the host: plans of steps, and best tokens

class CudaOps final : public Ops, public Reach {
 public:
  struct Parts {
    cudaStream_t stream = nullptr;
    const Family* family = nullptr;  // of kernels
    Arena arena;
    std::byte* fixed = nullptr;    // kFixedBytes on the device
    int32_t* plan_host = nullptr;  // kMostSequences + 1 integers and as many best tokens, known to the device
    const std::vector<Staging>* staging = nullptr;
    Form half = Form::bf16;  // of activations between products
    bool graphs = true;
  };
  explicit CudaOps(Parts parts);
  ~CudaOps() override;

  void begin(const Step& step) override;
  Tensor scratch(int64_t rows, int64_t cols) override;
  int64_t mark() override { return parts_.arena.mark(); }
  void restore(int64_t mark) override;

  Tensor repeat(const Step& step) override;
  bool recording() const override { return recording_; }
  std::string fetch(Tensor rows, float* numbers, int32_t* best) override;
  std::string fetch_shortlist(Tensor rows, const ShortlistBatch& batch, float* numbers) override;

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
  void linear_experts_glu(const Weight& gate, const Weight& up, Activation activation, const GluLimit& limit,
                          const Routing& routing, ExpertInput input, Tensor in, Tensor out) override;
  void glu_limited(const GluLimit& limit, Tensor gate, Tensor up, Tensor out) override;
  void spread(const Routing& routing, Tensor in, Tensor out) override;
  void combine(const Routing& routing, bool weighted, Tensor in, Tensor out) override;
  void add_gated(Tensor in, Tensor gate, Tensor out) override;

  void copy_heads(int32_t heads, int64_t width, Tensor in, Tensor out) override;
  void scale(const float* factors, int64_t count, Tensor inout) override;
  void mix(Tensor factors, float more, int32_t ins, int32_t outs, Tensor in, Tensor out) override;
  void scale_by_position(const PositionScale& scale, Tensor inout) override;
  void match_rms(Tensor like, Tensor inout) override;
  void sparsify(float deviations, Tensor inout) override;
  void pool(Pooling pooling, const Step& step, Tensor in, Tensor out) override;
  void linear_heads(const Weight& weight, Tensor in, Tensor out) override;
  void linear_delta(const RowDeltas& deltas, Tensor in, Tensor inout) override;

  void convolve(const Convolution& convolution, Tensor in, const StateView& state, Tensor out) override;
  void scan_heads(const HeadScan& scan, const HeadScanRows& in, const StateView& state, Tensor out) override;
  void scan_channels(const ChannelScan& scan, const ChannelScanRows& in, const StateView& state, Tensor out) override;

  void add_norm(Tensor in, float scale, Tensor inout, const Norm& norm, Tensor out) override;
  void linear_glu(const Weight& gate, const Weight& up, Activation activation, Tensor in, Tensor out) override;
  void linear_qkv(const Weight& q, const Weight& k, const Weight& v, Tensor in, Tensor q_out, Tensor k_out,
                  Tensor v_out) override;
  void finish_qkv(const QkvFinish& finish, int32_t heads, Tensor q, Tensor k, Tensor v, const KvView& kv) override;

  // ---- as one rank of several (ops_parts.cpp)
  void settle(Tensor tensor, bool written) override;
  void copy(std::byte* to, int64_t to_apart, const std::byte* from, int64_t from_apart, int64_t bytes,
            int64_t rows) override;
  void wait() override;
  void all_outputs(const std::byte* weights, int64_t rows) override;
  void begin_part(Tensor whole, int32_t heads_per_key) override;
  void end_part() override;

 private:
  struct Buffer {  // an activation's place and what lies in it
    std::byte* base;
    int64_t stride, bytes;
    Form form;
    bool gone = false;  // a product that went into a sum and was not written
  };
  struct StepKind {  // of steps that one recording serves
    int32_t rows, wanted;
    bool linked;
    bool brief;        // few positions to look at
    int64_t adapters;  // Step::adapter_set where rows have any, else 0
    auto operator<=>(const StepKind&) const = default;
  };
  struct Recorded {
    cudaGraphExec_t graph = nullptr;
    Tensor result;
  };

  Buffer* room_of(const std::byte* data);
  View view(Tensor tensor);
  View result(Tensor tensor, Form form);  // the same, about to be written in this form (float32 if it is part of a row)
  DeviceStep device_step(const KvView* kv) const;
  DeviceState device_state(const StateView& state) const;
  // The twin of an array that lies in staging memory, or null.
  int32_t* twin(const int32_t* host) const {
    const auto* at = reinterpret_cast<const std::byte*>(host);
    for (const Staging& staging : *parts_.staging) {
      if (at >= staging.host && at < staging.host + staging.bytes)
        return reinterpret_cast<int32_t*>(staging.device + (at - staging.host));
    }
    return nullptr;
  }
  // Where the device has an array of the step.
  const int32_t* on_device(const int32_t* host) const {
    const int32_t* found = twin(host);
    return found != nullptr ? found : host;
  }
  bool same(Tensor a, Tensor b) const { return a.data == b.data && a.rows == b.rows && a.cols == b.cols; }

  void queue_arrays();
  StartRows::Turns new_table(const Rope& rope);
  void flush();
  void flush_norm();
  void flush_finish();  // and the products it waits for
  void run_finishing(const Attention& attention, Tensor q, const KvView& kv);
  void flush_held();
  struct Residual {
    Tensor to;
    float scale = 1;
  };
  // Products of one input with panels. Takes up a norm held back for it.
  void multiply(Products work, Tensor in, std::optional<View> seen, const Residual* residual);
  void multiply_widened(Products work);
  void note(cudaError_t status) {
    if (failure_ == cudaSuccess) failure_ = status;
  }
  void multiply_experts(ExpertProducts work, DType type);
  void run_linear(const Weight& weight, Tensor in, std::optional<View> seen, Tensor out, const Residual* residual,
                  const CodedRows& coded = {});
  Tensor in_order(const int32_t* order, Tensor in);  // as Weight::order says, in room of its own
  // The input of weights in codes, in room that is free until the next is asked for.
  CodedRows code_inputs(DType type, Tensor in);
  void run_held(const Residual* residual);
  const float* rope_table(const Rope& rope);
  void plan_attention(const Step& step);
  static bool each_sees_itself_last(const Step& step);
  bool plain(const Step& step) const;  // one that is recorded
  void keep_recorded(const StepKind& kind, const Recorded& one);
  StepKind kind_of(const Step& step) const {  // of what plan_attention() has been told
    return {step.rows, step.wanted, linked_, step.rows <= kFewRows && plan_.longest <= kBriefChunks,
            step.adapters != nullptr ? step.adapter_set : 0};
  }
  // Where the device writes best tokens; until it has, there is kNoBest.
  int32_t* host_best() const { return parts_.plan_host + kMostSequences + 64; }
  void expect_best(int64_t rows) { std::fill_n(host_best(), rows, kNoBest); }
  void queue_best(Tensor rows);
  void queue_step(Tensor rows, bool best);  // what is left of the step, as a recording if there is to be one
  void queue_shortlist(Tensor rows, const ShortlistBatch& batch);
  void queue_rows(Tensor rows, float* numbers);
  std::string finish();
  std::string wait_for_best(int64_t rows);
  cudaError_t see_best(int64_t rows);
  std::string failure_text() const;
  void lost(Tensor tensor);                                 // it is not written, and not to be read
  int64_t outputs_of(const Products::Product& part) const;  // of all ranks
  // Which attention computes it is a matter of bits, so all ranks' heads decide.
  bool fits(const Attention& attention, const KvView& kv) const {
    return (attend_fits(attention, kv) || attend_small_fits(attention, kv)) &&
           (!part_ || part_->heads_per_key <= kMostHeadsPerKey);
  }

  struct RankShare {  // of what one rank would write at once
    Tensor whole;
    int32_t heads_per_key = 0;
    Tensor written = {};  // this rank's
    Form rounds_to = Form::f32;
  };

  Parts parts_;
  std::optional<RankShare> part_;  // of the call at hand
  std::unordered_map<const std::byte*, int64_t> all_outputs_;
  const Step* step_ = nullptr;
  std::vector<Buffer> rooms_;
  HeldCalls held_;
  struct Table {
    Rope rope;
    float* numbers;
  };
  std::vector<Table> tables_;  // of this step
  std::vector<Rope> ropes_;    // of steps so far: their tables are made beside the next embedding
  AttendPlan plan_;
  int64_t split_chunks_ = 0;  // of the sequences that are split
  // What this step's plan of teams was made for; how many there are may differ with any of it.
  struct StretchesFor {
    int32_t heads = 0, kv_heads = 0, dim = 0;
    DType type = DType::f32;
    bool softcap = false, slopes = false, scale = false;
    bool operator==(const StretchesFor&) const = default;
  };
  StretchesFor stretches_for_;
  int32_t* plan_device_ = nullptr;
  int32_t* best_device_ = nullptr;
  unsigned* argmax_finished_ = nullptr;
  bool to_record_ = false, recording_ = false, best_queued_ = false, sees_itself_last_ = false;
  bool linked_ = false;  // rows of one text are sequences of their own in this step
  std::map<StepKind, Recorded> recorded_;
  cudaError_t failure_ = cudaSuccess;
  bool read_lost_ = false;
};

}  // namespace millrace::cuda
