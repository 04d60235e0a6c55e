#include "model/streams.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace millrace {
namespace {

Tensor stream(const Tensor& all, int64_t index, int64_t width) { return columns(all, index * width, width); }

void copy(Ops& ops, Tensor from, Tensor to) { ops.copy_heads(1, from.cols, from, to); }

void multiply(Ops& ops, double factor, Tensor inout) { ops.finish_logits(static_cast<float>(factor), 0, inout); }

// How much each stream matters to the others, from one of them: [rows, streams], between -1 and 1.
Tensor weigh_streams(Ops& ops, const StreamWeights& weights, Tensor x) {
  Tensor routed = ops.scratch(x.rows, weights.router.rows);
  const int64_t start = ops.mark();
  Tensor normed = ops.scratch(x.rows, x.cols);
  ops.norm(weights.router_norm, 1, x, normed);
  ops.linear(weights.router, normed, routed);
  ops.finish_logits(1 / static_cast<float>(x.cols), 1, routed);  // the tanh of it
  ops.restore(start);
  return routed;
}

// (norm(W x / sqrt(width)) + table[token] * sqrt(part)) / sqrt(2), a part for each layer.
Tensor embed_layer_inputs(Ops& ops, const ModelSpec& spec, const ModelWeights& weights, const Step& step, Tensor x) {
  const auto layers = static_cast<int32_t>(spec.layers.size());
  const int32_t part = spec.layer_input->width;
  Tensor inputs = ops.scratch(x.rows, int64_t{layers} * part);
  ops.linear(weights.layer_project, x, inputs);
  multiply(ops, 1 / std::sqrt(static_cast<double>(spec.width)), inputs);
  ops.norm(weights.layer_project_norm, layers, inputs, inputs);
  ops.embed(weights.layer_table, step.tokens, 0, std::sqrt(static_cast<float>(part)), true, inputs);
  multiply(ops, 1 / std::numbers::sqrt2, inputs);
  return inputs;
}

// What a layer makes of its own input, given one stream: [rows, width].
void run_layer_input(Ops& ops, const LayerInputSpec& spec, const LayerInputWeights& weights, Tensor input, Tensor x,
                     Tensor out) {
  const int64_t start = ops.mark();
  Tensor gate = ops.scratch(x.rows, spec.width);
  ops.linear(weights.gate, x, gate);
  ops.glu(spec.activation, gate, input, gate);
  ops.linear(weights.project, gate, out);
  ops.norm(weights.norm, 1, out, out);
  ops.restore(start);
}

// x is what the layer made of its stream. Every stream moves by what that differs from its prediction.
void correct_streams(Ops& ops, const StreamsSpec& spec, const StreamWeights& weights, const Beside& beside, Tensor x) {
  const int64_t start = ops.mark();
  Tensor factors = ops.scratch(x.rows, spec.count);
  ops.linear(weights.correct, weigh_streams(ops, weights, x), factors);
  copy(ops, beside.predictions, beside.streams);
  ops.add(stream(beside.predictions, spec.active, x.cols), -1, x);
  ops.mix(factors, 1, 1, spec.count, x, beside.streams);
  ops.restore(start);
}

}  // namespace

Beside begin_beside(Ops& ops, const ModelSpec& spec, const ModelWeights& weights, const Step& step, Tensor x) {
  Beside beside;
  if (spec.layer_input) beside.inputs = embed_layer_inputs(ops, spec, weights, step, x);
  for (const LayerSpec& layer : spec.layers) {
    if (layer.laurel > 0 && !beside.laurel) beside.laurel = ops.scratch(x.rows, x.cols);
  }
  if (std::ranges::any_of(spec.layers, [](const LayerSpec& layer) { return layer.shared.has_value(); })) {
    beside.embedded = ops.scratch(x.rows, x.cols);
    copy(ops, x, beside.embedded);
  }
  if (!spec.streams) return beside;
  const int32_t count = spec.streams->count;
  beside.streams = ops.scratch(x.rows, count * x.cols);
  beside.predictions = ops.scratch(x.rows, count * x.cols);
  copy(ops, x, stream(beside.streams, 0, x.cols));
  for (int32_t i = 1; i < count; ++i) {
    const Tensor other = stream(beside.streams, i, x.cols);
    ops.linear(weights.stream_in.expert(i - 1), x, other);
    ops.match_rms(x, other);
  }
  return beside;
}

void predict_streams(Ops& ops, const ModelSpec& spec, const StreamWeights& weights, const Beside& beside, Tensor x) {
  const int64_t start = ops.mark();
  const int32_t count = spec.streams->count;
  Tensor factors = ops.scratch(x.rows, int64_t{count} * count);
  const Tensor active = stream(beside.streams, spec.streams->active, x.cols);
  ops.linear(weights.predict, weigh_streams(ops, weights, active), factors);
  copy(ops, beside.streams, beside.predictions);
  ops.mix(factors, 0, count, count, beside.streams, beside.predictions);
  copy(ops, stream(beside.predictions, spec.streams->active, x.cols), x);
  ops.restore(start);
}

void run_laurel(Ops& ops, const LaurelWeights& weights, int32_t rank, Tensor in, const Beside& beside) {
  const int64_t start = ops.mark();
  Tensor low = ops.scratch(in.rows, rank);
  ops.linear(weights.left, in, low);
  ops.linear(weights.right, low, beside.laurel);
  ops.norm(weights.norm, 1, beside.laurel, beside.laurel);
  ops.add(in, 1, beside.laurel);
  ops.restore(start);
}

void finish_beside(Ops& ops, const ModelSpec& spec, const LayerSpec& layer, const LayerWeights& weights, int64_t index,
                   const Beside& beside, Tensor x) {
  const int64_t start = ops.mark();
  if (spec.streams) {
    correct_streams(ops, *spec.streams, weights.streams, beside, x);
    copy(ops, stream(beside.streams, spec.streams->active, x.cols), x);
    if (weights.streams.scale != nullptr) ops.scale(weights.streams.scale, x.cols, x);
  }
  if (spec.layer_input) {
    const int32_t part = spec.layer_input->width;
    Tensor y = ops.scratch(x.rows, x.cols);
    run_layer_input(ops, *spec.layer_input, weights.layer_input, columns(beside.inputs, index * part, part), x, y);
    if (!spec.streams) ops.add(y, 1, x);
    for (int32_t i = 1; spec.streams && i < spec.streams->count; ++i) ops.add(y, 1, stream(beside.streams, i, x.cols));
  }
  if (layer.scaled) ops.scale(weights.scale, 1, x);
  ops.restore(start);
}

void join_streams(Ops& ops, const ModelSpec& spec, const ModelWeights& weights, const Beside& beside, Tensor x) {
  const int64_t start = ops.mark();
  const int32_t count = spec.streams->count;
  const Tensor first = stream(beside.streams, 0, x.cols);
  copy(ops, first, x);
  Tensor other = ops.scratch(x.rows, x.cols);
  for (int32_t i = 1; i < count; ++i) {
    ops.linear(weights.stream_out.expert(i - 1), stream(beside.streams, i, x.cols), other);
    ops.match_rms(first, other);
    ops.add(other, 1, x);
  }
  multiply(ops, 1.0 / count, x);
  ops.restore(start);
}

}  // namespace millrace
