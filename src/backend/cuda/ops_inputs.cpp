// Inputs brought into the form that products read: rounded to codes, or in the order of the weights.
#include "backend/cuda/ops.h"

namespace millrace::cuda {

CodedRows CudaOps::code_inputs(DType type, Tensor in) {
  const int64_t start = parts_.arena.mark();
  const Tensor room = parts_.arena.rows(in.rows, in.cols);
  parts_.arena.restore(start);
  const CodedRows coded = {room.data, room.stride, static_cast<int32_t>(in.rows), static_cast<int32_t>(in.cols),
                           type == DType::int8_128};
  if (held_.norm && same(held_.norm->out, in)) {
    const HeldCalls::NormCall held = *held_.norm;
    const View from = view(held.in);
    // What the norm reads may have been given back, and lie where the codes go.
    const bool apart = held.in.data + held.in.rows * held.in.stride <= room.data ||
                       room.data + room.rows * room.stride <= held.in.data;
    if (apart && code_normed(parts_.stream, held.norm, from, result(in, parts_.half), coded)) {
      held_.norm.reset();
      return coded;
    }
  }
  flush_norm();
  code_rows(parts_.stream, view(in), coded);
  return coded;
}

Tensor CudaOps::in_order(const int32_t* order, Tensor in) {
  flush();
  const Tensor out = scratch(in.rows, in.cols);
  const View from = view(in);
  order_columns(parts_.stream, order, from, result(out, from.form));
  return out;
}

}  // namespace millrace::cuda
