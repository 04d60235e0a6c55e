// Ops: the seam between the network and the machine. The network (model/forward.cpp, its mixers and ffns) is written
// once as eager calls on these operations; `reference`, `cpu`, `cuda` and `trace` interpret the same calls. One thread
// calls an Ops at a time, and calls run in order.
//
// Contract 1, for every op of every backend: a row of the result depends on that row's inputs and on weight shapes
// only, bit for bit. Not on the number of rows, their neighbours, chunking, page layout or threads.
//
// Activations are tensors of rows (tokens); weights are [outputs, inputs]. A backend must supply the primitives.
// Compositions have a body made of primitives: that body is their meaning, and overriding it is the only way to fuse.
// One thing more is allowed: what was given to add or add_norm as `in`, or to attend as q, is not read again until it
// is written anew, so a backend may add a product as it comes and never write it by itself (cuda/held.h), and turn
// queries where they lie.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "backend/delta.h"
#include "backend/kv_form.h"
#include "backend/routing.h"
#include "backend/states.h"
#include "backend/step.h"
#include "tensor/tensor.h"

namespace millrace {

struct ShortlistBatch;

// A matrix of the model as its backend keeps it, or one for each of several experts, packed one by one. `data` is in
// the backend's own layout.
struct Weight {
  DType type = DType::f32;     // format of the numbers
  int64_t rows = 0, cols = 0;  // outputs, inputs; of one expert
  const std::byte* data = nullptr;
  int64_t bytes = 0;            // what the backend reads of it in one pass, all experts together
  const float* bias = nullptr;  // [rows], of experts [experts, rows], or null
  uint8_t layout = 0;           // of the data; the backend's own numbering
  int32_t experts = 0;          // 0: one matrix, no expert's
  int64_t stride = 0;           // bytes from the data of one expert to that of the next
  // [cols] on the backend: number i of a row is multiplied with input order[i]. Null: with input i. Only `linear` and
  // the compositions of it know it, so neither tables nor experts have one.
  const int32_t* order = nullptr;
  explicit operator bool() const { return data != nullptr; }
  // An expert's matrix.
  Weight expert(int64_t index) const {
    return {type, rows, cols, data + index * stride, stride, bias != nullptr ? bias + index * rows : nullptr, layout};
  }
};

enum class NormKind : uint8_t { rms, layer };

// Weight and bias are float32 on the backend; a zero-centred weight (Gemma) has had its one added at load.
struct Norm {
  NormKind kind = NormKind::rms;
  float epsilon = 0;
  const float* weight = nullptr;  // [width], or null for none
  const float* bias = nullptr;    // [width], or null for none
  int64_t width = 0;              // of weight: the part's width, or the row's
};

enum class Activation : uint8_t { silu, gelu, gelu_tanh, relu, relu_squared, sigmoid, none };

// Rotary embedding. Frequencies are fixed at load and the same for every row.
struct Rope {
  const float* frequencies = nullptr;  // [dims / 2], radians a position
  int32_t dims = 0;                    // leading dimensions of a head that turn; 0: no rotation
  float magnitude = 1;                 // cos and sin are multiplied by it (YaRN)
  bool neighbours = false;             // pairs are (2i, 2i+1) instead of (i, i + dims/2)
};

// Where the keys and values of one layer lie, and its state if it keeps one: pages of a store, addressed through the
// step's page tables.
// Keys of head h: base + page * page_stride + k_offset + h * page_tokens * kv_bytes(form.k, k_dim), laid out as
// backend/kv_form.h says; values likewise.
// v_dim 0: there are keys only, and values are the first Attention::value_dim numbers of a key (a latent).
struct KvView {
  std::byte* base = nullptr;
  int64_t page_stride = 0;  // bytes from page to page
  int64_t k_offset = 0, v_offset = 0;
  int32_t page_tokens = 0;
  int32_t kv_heads = 0;
  int32_t k_dim = 0, v_dim = 0;
  KvForm form = DType::f32;
  int32_t group = 0;  // index into Step::groups

  const std::byte* keys(int64_t page, int64_t head) const {
    return base + page * page_stride + k_offset + head * page_tokens * kv_bytes(form.k, k_dim);
  }
  const std::byte* values(int64_t page, int64_t head) const {
    return base + page * page_stride + v_offset + head * page_tokens * kv_bytes(form.v, v_dim);
  }
  StateView state;
};

// What the cache keeps of a token, all kv heads.
inline int64_t token_bytes(const KvView& kv) {
  return kv.kv_heads * (kv_bytes(kv.form.k, kv.k_dim) + kv_bytes(kv.form.v, kv.v_dim));
}

struct Attention {
  int32_t heads = 0;
  float scale = 1;
  int32_t value_dim = 0;          // of a value, where the cache keeps keys only
  int32_t window = 0;             // a row at position p sees positions > p - window only; 0: all
  int32_t ahead = 0;              // a row at position p sees positions <= p + ahead only; 0: all that is visible
  int32_t grid = 0;               // a row at position p sees positions >= p / grid * grid only; 0: all
  float softcap = 0;              // scores become softcap * tanh(score / softcap); 0: off
  const float* slopes = nullptr;  // [heads] ALiBi: slope * (key position - row position) is added; null: none
  const float* sinks = nullptr;   // [heads] a score that takes part in the softmax and has no value; null: none
  // With a window: the first `kept` positions are seen too. Where the window has left them behind they are seen from
  // kept_from(), not from where the row stands: no distance grows beyond what was trained. `turn` is what turned the
  // queries, so that they can be turned back to there; dims 0: nothing did.
  int32_t kept = 0;
  Rope turn;

  // The first position that a row at `position` sees without a gap to its own; it sees the kept ones before that.
  int64_t begin(int64_t position) const {
    const int64_t cut = grid > 0 ? position / grid * grid : 0;
    const int64_t first = window > 0 ? std::max(cut, position - window + 1) : cut;
    return first <= kept ? 0 : first;
  }
  // Whether positions are forgotten between the kept ones and those of the window.
  bool apart(int64_t position) const { return kept > 0 && position >= int64_t{window} + kept; }
  // Where a row stands for the kept positions: as if what is forgotten had never been.
  int64_t kept_from(int64_t position) const { return std::min<int64_t>(position, int64_t{window} + kept - 1); }
  // Where what it sees ends, of positions [0, visible).
  int64_t end(int64_t position, int64_t visible) const {
    return ahead > 0 ? std::min(visible, position + ahead + 1) : visible;
  }
  int32_t value_width(const KvView& kv) const { return kv.v_dim > 0 ? kv.v_dim : value_dim; }
};

// Queries grow with their position p: times 1 + factor * ln(1 + (p + offset) / every), a whole quotient.
struct PositionScale {
  float factor = 0;
  int32_t every = 0, offset = 0;  // every 0: they do not
};

// How the rows of a text become one: its first row, its last, or of all of them the mean, the sum over the root of
// their number, the mean with weights 1, 2, 3 ..., or the largest of each column.
enum class Pooling : uint8_t { first, last, mean, mean_root, mean_weighted, most };

// What happens to q, k and v between their products and attention.
struct QkvFinish {
  const Norm* q_norm = nullptr;  // null: none
  const Norm* k_norm = nullptr;
  bool norm_per_head = true;  // each head apart, or the whole row at once (OLMo 2)
  Rope rope;
  bool norm_after_rope = false;
  float clip = 0;         // clamp to [-clip, clip] first; 0: off
  PositionScale q_scale;  // last, of q alone
};

// Some columns of every row.
inline Tensor columns(Tensor all, int64_t first, int64_t count) {
  all.data += first * static_cast<int64_t>(sizeof(float));
  all.cols = count;
  return all;
}

class Ops {
 public:
  virtual ~Ops() = default;

  // Starts a step: everything until the next begin belongs to it. The step must outlive the calls.
  virtual void begin(const Step& step) = 0;
  // Room for an activation, uninitialised, until the mark is restored. Never fails within the planned workspace.
  virtual Tensor scratch(int64_t rows, int64_t cols) = 0;
  virtual int64_t mark() = 0;
  virtual void restore(int64_t mark) = 0;

  // Does what an earlier step of the same counts did, with this step's arrays, and gives what that gave; null if there
  // is no such step to go by, and the calls are to be made.
  virtual Tensor repeat(const Step&) { return {}; }
  // Whether the step that has begun will be repeated: which calls are made for it must then follow from its counts and
  // from what is loaded, and not from who takes part.
  virtual bool recording() const { return false; }
  // Waits for the step and brings a result's rows to the host, densely, and where each row's largest number is (the
  // lowest place of equals; -1 if the row has none). Either may be null. Says what went wrong, or nothing. By
  // default the host does it, with rows that it can read.
  virtual std::string fetch(Tensor rows, float* numbers, int32_t* best);
  // The same, but of each row what its ask says (backend/shortlist.h); whole ones go to their place in `numbers`. At
  // most kShortlistRows.
  virtual std::string fetch_shortlist(Tensor rows, const ShortlistBatch& batch, float* numbers);

  // ---- primitives -------------------------------------------------------------------------------------------------
  // out[r] = table[ids[r]] * scale, or added to out[r] if `add`. ids on the backend, [out.rows]; offset is added to
  // each. An id beyond the table reads its first row: some tables end before the vocabulary does.
  virtual void embed(const Weight& table, const int32_t* ids, int32_t offset, float scale, bool add, Tensor out) = 0;
  // Rows are cut into `parts` equal parts normalised apart (heads); weight repeats per part or spans the row. May be in
  // place.
  virtual void norm(const Norm& norm, int32_t parts, Tensor in, Tensor out) = 0;
  virtual void linear(const Weight& weight, Tensor in, Tensor out) = 0;             // out = in * weight^T + bias
  virtual void activate(Activation activation, Tensor in, Tensor out) = 0;          // may be in place
  virtual void glu(Activation activation, Tensor gate, Tensor up, Tensor out) = 0;  // act(gate) * up; may be in place
  virtual void add(Tensor in, float scale, Tensor out) = 0;                         // out += scale * in
  virtual void clamp(float limit, Tensor inout) = 0;                                // to [-limit, limit]
  virtual void rope(const Rope& rope, int32_t heads, Tensor inout) = 0;             // position from the step
  virtual void kv_store(Tensor k, Tensor v, const KvView& kv) = 0;                  // rounds to the cache's format
  // Every row reads keys and values from the cache only, its own included, so how it got there cannot matter.
  virtual void attend(const Attention& attention, Tensor q, const KvView& kv, Tensor out) = 0;
  virtual void gather(const int32_t* rows, Tensor in, Tensor out) = 0;       // out[i] = in[rows[i]]
  virtual void finish_logits(float scale, float softcap, Tensor inout) = 0;  // x*scale, then softcap if > 0

  // ---- primitives of experts (routing.h); a backend whose upload_experts refuses need not have them ---------------
  // Chooses experts by logits [rows, experts], and fills every array of `routing`.
  virtual void route(const Router& router, Tensor logits, const Routing& routing);
  // out[p] = expert's weight * its input + its bias, for every pair p; out [pairs, weight.rows]. Its input is row p of
  // `in` (pairs) or the row of the step that it belongs to (rows). How many rows an expert has shows in no bit.
  virtual void linear_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in, Tensor out);
  virtual void glu_limited(const GluLimit& limit, Tensor gate, Tensor up, Tensor out);  // may be in place
  virtual void spread(const Routing& routing, Tensor in, Tensor out);  // out[p] = weight of p * in[row of p]
  // out[r] = 0 + the pairs of row r, experts ascending, each times its weight if `weighted`.
  virtual void combine(const Routing& routing, bool weighted, Tensor in, Tensor out);
  virtual void add_gated(Tensor in, Tensor gate, Tensor out);  // out[r] += sigmoid(gate[r][0]) * in[r]

  virtual void scale_by_position(const PositionScale& scale, Tensor inout);  // position from the step

  // ---- primitives of states (states.h); a backend that has none says so (Backend::has_states) ----------------------
  // `in` and `out` lie apart. The state is read, and written as it stands after the sequence's last row.
  virtual void convolve(const Convolution& convolution, Tensor in, const StateView& state, Tensor out);
  virtual void scan_heads(const HeadScan& scan, const HeadScanRows& in, const StateView& state, Tensor out);
  virtual void scan_channels(const ChannelScan& scan, const ChannelScanRows& in, const StateView& state, Tensor out);

  // Room for a routing, until the mark is restored.
  Routing scratch_routing(const Router& router, int64_t rows);

  // ---- compositions -----------------------------------------------------------------------------------------------
  virtual void add_norm(Tensor in, float scale, Tensor inout, const Norm& norm,
                        Tensor out);  // inout += ..; out = norm(inout)
  virtual void linear_glu(const Weight& gate, const Weight& up, Activation activation, Tensor in, Tensor out);
  // out[p] = act(gate) * up of the pair's expert, or glu_limited if there is a limit; out [pairs, gate.rows].
  virtual void linear_experts_glu(const Weight& gate, const Weight& up, Activation activation, const GluLimit& limit,
                                  const Routing& routing, ExpertInput input, Tensor in, Tensor out);
  virtual void linear_qkv(const Weight& q, const Weight& k, const Weight& v, Tensor in, Tensor q_out, Tensor k_out,
                          Tensor v_out);
  virtual void finish_qkv(const QkvFinish& finish, int32_t heads, Tensor q, Tensor k, Tensor v,
                          const KvView& kv);  // ends in kv_store

  // ---- primitives of heads and streams. By default the host computes them, with rows that it can read; a backend
  // whose rows it cannot read says which it has (Backend::has_latents, Backend::has_streams)
  // -------------------------------- The first `width` numbers of each head, from `in` to `out`; a tensor's heads lie
  // cols / heads apart.
  virtual void copy_heads(int32_t heads, int64_t width, Tensor in, Tensor out);
  // inout *= factors, one for each column or (count 1) one for all; on the backend.
  virtual void scale(const float* factors, int64_t count, Tensor inout);
  // Rows are parts one after another: `ins` of `in` and `outs` of `out`, all of the same width. Part j of out += the
  // sum over i, ascending, of (factors[row][j * ins + i] + more) * part i of in.
  virtual void mix(Tensor factors, float more, int32_t ins, int32_t outs, Tensor in, Tensor out);
  virtual void match_rms(Tensor like, Tensor inout);  // rows are scaled to the root mean square that `like` has
  // What exceeds the row's mean by more than so many of its standard deviations, less that; the rest becomes zero.
  virtual void sparsify(float deviations, Tensor inout);
  // out[s] = the step's rows of sequence s as one, taken in ascending order; `in` has all rows. Of the host's, unless
  // the backend has it.
  virtual void pool(Pooling pooling, const Step& step, Tensor in, Tensor out);
  // inout[r] += strength * (scale * (up (down in[r]))) for rows that have an adapter which changes this matrix; the
  // others are not touched. Of a table `in` is not read, but ids. By default the host computes it, as above.
  virtual void linear_delta(const RowDeltas& deltas, Tensor in, Tensor inout);
  // A composition. Head h of out = matrix h of the weight (its experts are the heads) * the first numbers of head h of
  // in; a tensor's heads lie cols / heads apart, and what lies between is not touched.
  virtual void linear_heads(const Weight& weight, Tensor in, Tensor out);
};

}  // namespace millrace
