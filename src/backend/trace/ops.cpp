#include <algorithm>
#include <array>
#include <utility>

#include "backend/memory.h"
#include "backend/trace/trace.h"

namespace millrace {
namespace {

constexpr int64_t kFloat = sizeof(float);

int64_t values(Tensor tensor) { return tensor.rows * tensor.cols; }

// Per value: roughly what a vectorised version computes. They matter to nobody's roofline, but zero would be a lie.
double activation_flops(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return 10;
    case Activation::gelu:
    case Activation::gelu_tanh:
      return 14;
    case Activation::sigmoid:
      return 9;
    case Activation::none:
    case Activation::relu:
      return 1;
    case Activation::relu_squared:
      return 2;
  }
  return 1;
}

}  // namespace

Cost& Cost::operator+=(const Cost& other) {
  calls += other.calls;
  weight_bytes += other.weight_bytes;
  kv_bytes += other.kv_bytes;
  activation_bytes += other.activation_bytes;
  flops += other.flops;
  return *this;
}

TraceSummary TraceOps::summary() const {
  TraceSummary summary;
  for (const TraceRecord& record : records_) {
    summary.by_op[{std::string(record.op), record.type}] += record.cost;
    summary.total += record.cost;
  }
  summary.workspace_bytes = workspace_bytes();
  return summary;
}

void TraceOps::clear() {
  records_.clear();
  peak_ = top_;
  peak_tables_ = tables_;
}

void TraceOps::begin(const Step& step) {
  step_ = &step;
  top_ = 0;
  tables_ = 0;
  frequency_sets_.clear();
}

Tensor TraceOps::scratch(int64_t rows, int64_t cols) {
  int64_t stride = aligned(cols * kFloat);
  // An address that is not null and distinct per place, so that callers may compare tensors; nothing lies there.
  Tensor tensor{reinterpret_cast<std::byte*>(kAlignment + top_), DType::f32, rows, cols, stride};
  top_ += rows * stride;
  peak_ = std::max(peak_, top_);
  return tensor;
}

void TraceOps::record(std::string_view op, DType type, int64_t rows, int64_t inputs, int64_t outputs, Cost cost) {
  cost.calls = 1;
  records_.push_back({op, type, rows, inputs, outputs, cost});
}

void TraceOps::elementwise(std::string_view op, Tensor in, Tensor out, int64_t tensors_moved, double flops_per_value) {
  Cost cost;
  cost.activation_bytes = tensors_moved * values(in) * kFloat;
  cost.flops = flops_per_value * static_cast<double>(values(in));
  record(op, DType::f32, out.rows, in.cols, out.cols, cost);
}

void TraceOps::embed(const Weight& table, const int32_t*, int32_t, float, bool add, Tensor out) {
  Cost cost;
  cost.weight_bytes = table.rows > 0 ? table.bytes / table.rows * out.rows : 0;
  cost.activation_bytes = (add ? 2 : 1) * values(out) * kFloat;
  cost.flops = static_cast<double>(values(out));
  record("embed", table.type, out.rows, 1, out.cols, cost);
}

void TraceOps::norm(const Norm& norm, int32_t, Tensor in, Tensor out) {
  elementwise("norm", in, out, 2, norm.kind == NormKind::layer ? 7 : 4);
  Cost& cost = records_.back().cost;
  cost.weight_bytes = norm.width * kFloat * ((norm.weight != nullptr ? 1 : 0) + (norm.bias != nullptr ? 1 : 0));
}

void TraceOps::linear(const Weight& weight, Tensor in, Tensor out) {
  Cost cost;
  cost.weight_bytes = weight.bytes + (weight.bias != nullptr ? weight.rows * kFloat : 0);
  cost.activation_bytes = (values(in) + values(out)) * kFloat;
  if (weight.order != nullptr) {  // the input once more, in another order
    cost.weight_bytes += weight.cols * static_cast<int64_t>(sizeof(int32_t));
    cost.activation_bytes += 2 * values(in) * kFloat;
  }
  cost.flops = 2.0 * static_cast<double>(in.rows) * static_cast<double>(weight.rows) * static_cast<double>(weight.cols);
  record("linear", weight.type, out.rows, weight.cols, weight.rows, cost);
  // Backends keep the input in a form of their own while they multiply, in at most this much room. Rows may be padded
  // to a tile of kRowPadding.
  int64_t start = mark();
  if (weight.order != nullptr) scratch(in.rows, in.cols);
  scratch((in.rows + kRowPadding - 1) / kRowPadding * kRowPadding, in.cols + kColumnPadding);
  restore(start);
}

void TraceOps::activate(Activation activation, Tensor in, Tensor out) {
  elementwise("activate", in, out, 2, activation_flops(activation));
}

void TraceOps::glu(Activation activation, Tensor gate, Tensor, Tensor out) {
  elementwise("glu", gate, out, 3, activation_flops(activation) + 1);
}

void TraceOps::add(Tensor in, float, Tensor out) { elementwise("add", in, out, 3, 2); }

void TraceOps::clamp(float, Tensor inout) { elementwise("clamp", inout, inout, 2, 2); }

void TraceOps::rope(const Rope& rope, int32_t heads, Tensor inout) {
  Cost cost;
  double turned = static_cast<double>(inout.rows) * heads * rope.dims;
  cost.activation_bytes = 2 * kFloat * inout.rows * heads * rope.dims;
  cost.flops = 3 * turned;
  record("rope", DType::f32, inout.rows, inout.cols, inout.cols, cost);
  if (std::find(frequency_sets_.begin(), frequency_sets_.end(), rope.frequencies) != frequency_sets_.end()) return;
  frequency_sets_.push_back(rope.frequencies);
  tables_ += aligned(inout.rows * rope.dims * kFloat);  // cos and sin of every row, kept until the next step
  peak_tables_ = std::max(peak_tables_, tables_);
}

void TraceOps::kv_store(Tensor k, Tensor v, const KvView& kv) {
  Cost cost;
  cost.kv_bytes = k.rows * token_bytes(kv);
  cost.activation_bytes = (values(k) + values(v)) * kFloat;
  record("kv_store", kv.form.k, k.rows, k.cols + v.cols, 0, cost);
}

void TraceOps::attend(const Attention& attention, Tensor q, const KvView& kv, Tensor out) {
  Cost cost;
  double seen = 0;        // positions, summed over rows
  int64_t positions = 0;  // read, each once per sequence
  for (int32_t s = 0; s < step_->sequences; ++s) {
    int64_t lowest = INT64_MAX, highest = 0, kept = 0;
    for (int32_t r = step_->first_row[s]; r < step_->first_row[s + 1]; ++r) {
      int64_t end = attention.end(step_->positions[r], step_->visible[r]);
      int64_t begin = std::min(attention.begin(step_->positions[r]), end);
      if (attention.apart(step_->positions[r])) kept = attention.kept;
      seen += static_cast<double>(end - begin + (attention.apart(step_->positions[r]) ? attention.kept : 0));
      lowest = std::min(lowest, begin);
      highest = std::max(highest, end);
    }
    if (highest > lowest) positions += highest - lowest + std::min(kept, lowest);
  }
  // Two products and an exponential. The widths are those of queries and results: a latent is key and value in one.
  cost.flops = seen * (2.0 * static_cast<double>(q.cols + out.cols) + 10.0 * attention.heads);
  cost.kv_bytes = positions * token_bytes(kv);
  cost.activation_bytes = (values(q) + values(out)) * kFloat;
  record("attend", kv.form.k, out.rows, q.cols, out.cols, cost);
}

void TraceOps::gather(const int32_t*, Tensor, Tensor out) { elementwise("gather", out, out, 2, 0); }

void TraceOps::route(const Router& router, Tensor logits, const Routing& routing) {
  elementwise("route", logits, logits, 1, 8 + router.chosen);
  records_.back().cost.activation_bytes += routing.pairs() * 4 * kFloat;
}

// Which experts are read is not known before they are chosen: as many as rows that choose evenly would need. A rank
// that has some of them has its share.
void TraceOps::linear_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in, Tensor out) {
  auto share = [&](int64_t of_all) { return (of_all * weight.experts + routing.experts - 1) / routing.experts; };
  const int64_t touched = share(touched_experts(routing.experts, routing.chosen, routing.rows));
  const int64_t pairs = share(routing.pairs());
  Cost cost;
  cost.weight_bytes = touched * (weight.stride + (weight.bias != nullptr ? weight.rows * kFloat : 0));
  cost.activation_bytes = (values(in) + values(out)) * kFloat;
  cost.flops = 2.0 * static_cast<double>(pairs) * static_cast<double>(weight.rows) * static_cast<double>(weight.cols);
  record("linear_experts", weight.type, out.rows, weight.cols, weight.rows, cost);
  // Backends may bring each expert's rows together, and keep them in a form of their own as `linear` does.
  int64_t start = mark();
  if (input == ExpertInput::rows) scratch(routing.pairs(), in.cols);
  scratch(padded_pairs(routing), in.cols + kColumnPadding);
  restore(start);
}

void TraceOps::glu_limited(const GluLimit&, Tensor gate, Tensor, Tensor out) {
  elementwise("glu_limited", gate, out, 3, 15);
}

void TraceOps::spread(const Routing&, Tensor, Tensor out) { elementwise("spread", out, out, 2, 1); }

void TraceOps::combine(const Routing&, bool, Tensor in, Tensor out) {
  elementwise("combine", in, out, 1, 2);
  records_.back().cost.activation_bytes += values(out) * kFloat;
}

void TraceOps::add_gated(Tensor in, Tensor, Tensor out) { elementwise("add_gated", in, out, 3, 2); }

void TraceOps::scale_by_position(const PositionScale&, Tensor inout) {
  elementwise("scale_by_position", inout, inout, 2, 1);
}

void TraceOps::copy_heads(int32_t heads, int64_t width, Tensor, Tensor out) {
  elementwise("copy_heads", columns(out, 0, heads * width), out, 2, 0);
}

void TraceOps::scale(const float*, int64_t count, Tensor inout) {
  elementwise("scale", inout, inout, 2, 1);
  records_.back().cost.weight_bytes = count * kFloat;
}

void TraceOps::mix(Tensor, float, int32_t, int32_t outs, Tensor in, Tensor out) {
  elementwise("mix", in, out, 1, 2.0 * outs);
  records_.back().cost.activation_bytes += 2 * values(out) * kFloat;
}

void TraceOps::match_rms(Tensor, Tensor inout) { elementwise("match_rms", inout, inout, 3, 5); }

void TraceOps::sparsify(float, Tensor inout) { elementwise("sparsify", inout, inout, 2, 7); }

void TraceOps::pool(Pooling, const Step&, Tensor in, Tensor out) {
  elementwise("pool", in, out, 1, 2);
  records_.back().cost.activation_bytes += values(out) * kFloat;
}

void TraceOps::linear_heads(const Weight& weight, Tensor in, Tensor out) {
  const int64_t heads = weight.experts;
  Cost cost;
  cost.weight_bytes = weight.bytes;
  cost.activation_bytes = in.rows * heads * (weight.rows + weight.cols) * kFloat;
  cost.flops = 2.0 * static_cast<double>(in.rows * heads) * static_cast<double>(weight.rows * weight.cols);
  record("linear_heads", weight.type, out.rows, heads * weight.cols, heads * weight.rows, cost);
  // As `linear` does, for every head.
  int64_t start = mark();
  scratch(heads * ((in.rows + kRowPadding - 1) / kRowPadding * kRowPadding), weight.cols + kColumnPadding);
  restore(start);
}

// An adapter's matrices are read once, however many rows have it.
void TraceOps::linear_delta(const RowDeltas& deltas, Tensor in, Tensor inout) {
  Cost cost;
  std::array<bool, kMostAdapters> read = {};
  const bool table = deltas.ids != nullptr;
  for (int64_t r = 0; r < inout.rows; ++r) {
    if (deltas.adapters[r] < 0) continue;
    const Delta& delta = deltas.listed[deltas.adapters[r]];
    const int64_t ins = table ? 1 : in.cols;
    cost.flops += 2.0 * delta.rank * static_cast<double>((table ? 0 : ins) + inout.cols);
    if (delta.rank == 0) continue;
    cost.activation_bytes += ((table ? 0 : ins) + 2 * inout.cols) * kFloat;
    const int64_t number = bytes_of(delta.numbers);
    if (table) cost.weight_bytes += delta.rank * number;
    if (std::exchange(read[static_cast<size_t>(deltas.adapters[r])], true)) continue;
    cost.weight_bytes += delta.rank * ((table ? 0 : ins) + inout.cols) * number;
  }
  record("linear_delta", DType::f32, inout.rows, table ? 0 : in.cols, inout.cols, cost);
}

// A state is read by every sequence that has one, and written by all.
void TraceOps::record_state(std::string_view op, const StateView& state, StateView::Kind part, Cost cost, Tensor in,
                            Tensor out) {
  for (int32_t s = 0; s < step_->sequences; ++s) {
    const bool empty = step_->positions[step_->first_row[s]] == 0;
    cost.kv_bytes += (empty ? 1 : 2) * state.numbers[part] * kFloat;
  }
  record(op, DType::f32, out.rows, in.cols, out.cols, cost);
}

void TraceOps::convolve(const Convolution& convolution, Tensor in, const StateView& state, Tensor out) {
  Cost cost;
  cost.weight_bytes = out.cols * (convolution.taps + (convolution.bias != nullptr ? 1 : 0)) * kFloat;
  cost.activation_bytes = (values(in) + values(out)) * kFloat;
  cost.flops = static_cast<double>(values(out)) * (2.0 * convolution.taps + (convolution.silu ? 10 : 0));
  record_state("convolve", state, StateView::kConvolution, cost, in, out);
}

void TraceOps::scan_heads(const HeadScan& scan, const HeadScanRows& in, const StateView& state, Tensor out) {
  Cost cost;
  cost.activation_bytes =
      (values(in.q) + values(in.k) + values(in.v) + values(in.steps) + values(in.beta) + values(out)) * kFloat;
  cost.weight_bytes = 3 * scan.heads * kFloat;
  cost.flops = (scan.delta ? 7.0 : 5.0) * static_cast<double>(out.rows * scan.heads) *
               static_cast<double>(scan.key_dim * scan.value_dim);
  record_state("scan_heads", state, StateView::kScan, cost, in.v, out);
}

void TraceOps::scan_channels(const ChannelScan& scan, const ChannelScanRows& in, const StateView& state, Tensor out) {
  Cost cost;
  cost.activation_bytes = (values(in.a) + values(in.b) + values(in.c) + values(in.d) + values(out)) * kFloat;
  const bool each = scan.kind == ChannelScanKind::selective || scan.kind == ChannelScanKind::modal;
  cost.weight_bytes = out.cols * (each ? scan.states * 2 : 2) * kFloat;
  cost.flops = static_cast<double>(values(out)) * (20 + (each ? 16.0 * scan.states : 20.0));
  record_state("scan_channels", state, StateView::kScan, cost, in.a, out);
}

void TraceOps::finish_logits(float scale, float softcap, Tensor inout) {
  if (scale == 1 && softcap <= 0) return;
  elementwise("finish_logits", inout, inout, 2, softcap > 0 ? 12 : 1);
}

}  // namespace millrace
