// Routing, products of experts and of heads, and operations on streams. Nothing here is held back, and how many rows an
// expert has is never asked for. A rank may have some of the experts: `weight.experts`, whose pairs begin at
// routing.first[0], and pairs of others are left alone.
#include "backend/cuda/ops.h"
#include "backend/cuda/packed.h"

namespace millrace::cuda {

void CudaOps::route(const Router& router, Tensor logits, const Routing& routing) {
  flush();
  cuda::route(parts_.stream, router, view(logits), routing);
}

namespace {

ExpertProducts products_of(const Weight& weight, const Routing& routing, ExpertInput input, View in, View out) {
  return {.weights = weight.data,
          .stride = weight.stride,
          .bias = weight.bias,
          .outputs = static_cast<int32_t>(weight.rows),
          .cols = static_cast<int32_t>(weight.cols),
          .chunks = static_cast<int32_t>(chunks_of(weight.cols)),
          .experts = weight.experts,
          .pairs = routing.pairs(),
          .first = routing.first,
          .row = input == ExpertInput::rows ? routing.row : nullptr,
          .in = in,
          .out = static_cast<float*>(out.data),
          .out_stride = out.stride / static_cast<int64_t>(sizeof(float))};
}

}  // namespace

void CudaOps::linear_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in, Tensor out) {
  flush();
  const View from = view(in);
  const ExpertProducts work = products_of(weight, routing, input, from, result(out, Form::f32));
  if (weight.layout != kPanels) return any_expert_products(parts_.stream, work, weight.type);
  multiply_experts(work, weight.type);
}

void CudaOps::linear_experts_glu(const Weight& gate, const Weight& up, Activation activation, const GluLimit& limit,
                                 const Routing& routing, ExpertInput input, Tensor in, Tensor out) {
  if (gate.layout != kPanels || up.layout != kPanels || gate.type != up.type || gate.stride != up.stride)
    return Ops::linear_experts_glu(gate, up, activation, limit, routing, input, in, out);
  flush();
  const View from = view(in), to = result(out, gate.type == DType::f16 ? Form::f16 : Form::bf16);
  ExpertProducts work = products_of(gate, routing, input, from, to);
  work.up = up.data;
  work.up_bias = up.bias;
  work.activation = activation;
  work.limit = limit;
  work.out_form = to.form;
  multiply_experts(work, gate.type);
}

// Panels want inputs in the form of their products.
void CudaOps::multiply_experts(ExpertProducts work, DType type) {
  const int64_t start = parts_.arena.mark();
  const Form form = type == DType::f16 ? Form::f16 : Form::bf16;
  if (work.in.form != form) {
    const Tensor room = parts_.arena.rows(work.in.rows, work.in.cols);
    const View converted = {room.data, room.stride, work.in.rows, work.in.cols, form};
    convert(parts_.stream, work.in, converted);
    work.in = converted;
  }
  expert_products(parts_.stream, work, type);
  parts_.arena.restore(start);
}

void CudaOps::linear_delta(const RowDeltas& deltas, Tensor in, Tensor inout) {
  flush();
  const auto* strengths = reinterpret_cast<const float*>(on_device(reinterpret_cast<const int32_t*>(deltas.strengths)));
  const DeltaRows rows = {.changes = deltas.changes,
                          .adapters = on_device(deltas.adapters),
                          .strengths = strengths,
                          .ids = deltas.ids != nullptr ? on_device(deltas.ids) : nullptr,
                          .low = deltas.low,
                          .rank = deltas.rank};
  const View from = deltas.ids != nullptr ? View{} : view(in);
  cuda::linear_delta(parts_.stream, rows, from, view(inout));
}

void CudaOps::linear_heads(const Weight& weight, Tensor in, Tensor out) {
  const int64_t in_apart = in.cols / weight.experts, out_apart = out.cols / weight.experts;
  const bool whole = reinterpret_cast<uintptr_t>(in.data) % 32 == 0;  // sixteen bytes at a time, in any form
  if (weight.layout != kPanels || in_apart % 8 != 0 || !whole) return Ops::linear_heads(weight, in, out);
  flush();
  const View from = view(in), to = result(out, Form::f32);
  multiply_experts({.weights = weight.data,
                    .stride = weight.stride,
                    .bias = weight.bias,
                    .outputs = static_cast<int32_t>(weight.rows),
                    .cols = static_cast<int32_t>(weight.cols),
                    .chunks = static_cast<int32_t>(chunks_of(weight.cols)),
                    .experts = weight.experts,
                    .pairs = in.rows * weight.experts,
                    .in = from,
                    .out = static_cast<float*>(to.data),
                    .out_stride = to.stride / static_cast<int64_t>(sizeof(float)),
                    .head_rows = static_cast<int32_t>(in.rows),
                    .in_apart = static_cast<int32_t>(in_apart),
                    .out_apart = static_cast<int32_t>(out_apart)},
                   weight.type);
}

// Parts of rows: the rest stays what it is, in the form that it has.
void CudaOps::copy_heads(int32_t heads, int64_t width, Tensor in, Tensor out) {
  flush();
  cuda::copy_heads(parts_.stream, heads, static_cast<int32_t>(width), view(in), view(out));
}

void CudaOps::scale(const float* factors, int64_t count, Tensor inout) {
  flush();
  cuda::scale(parts_.stream, factors, count == 1, view(inout));
}

void CudaOps::mix(Tensor factors, float more, int32_t ins, int32_t outs, Tensor in, Tensor out) {
  flush();
  cuda::mix(parts_.stream, view(factors), more, ins, outs, view(in), view(out));
}

void CudaOps::scale_by_position(const PositionScale& scale, Tensor inout) {
  flush();
  cuda::scale_by_position(parts_.stream, scale, on_device(step_->positions), view(inout));
}

void CudaOps::match_rms(Tensor like, Tensor inout) {
  flush();
  cuda::match_rms(parts_.stream, view(like), view(inout));
}

void CudaOps::sparsify(float deviations, Tensor inout) {
  flush();
  cuda::sparsify(parts_.stream, deviations, view(inout));
}

void CudaOps::pool(Pooling pooling, const Step& step, Tensor in, Tensor out) {
  flush();
  const View from = view(in);
  cuda::pool(parts_.stream, pooling, on_device(step.first_row), from, result(out, Form::f32));
}

void CudaOps::glu_limited(const GluLimit& limit, Tensor gate, Tensor up, Tensor out) {
  flush();
  const View first = view(gate), second = view(up);
  const bool in_place = out.data == gate.data || out.data == up.data;
  cuda::glu_limited(parts_.stream, limit, first, second, in_place ? view(out) : result(out, Form::f32));
}

void CudaOps::spread(const Routing& routing, Tensor in, Tensor out) {
  flush();
  const View from = view(in);
  cuda::spread(parts_.stream, routing, from, result(out, Form::f32));
}

void CudaOps::combine(const Routing& routing, bool weighted, Tensor in, Tensor out) {
  flush();
  const View from = view(in);
  cuda::combine(parts_.stream, routing, weighted, from, result(out, Form::f32));
}

void CudaOps::add_gated(Tensor in, Tensor gate, Tensor out) {
  flush();
  cuda::add_gated(parts_.stream, view(in), view(gate), view(out));
}

}  // namespace millrace::cuda
