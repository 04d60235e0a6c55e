// Heads and streams on the team: a product for each head as one list of tasks, and the primitives of streams row by
// row.
#include <algorithm>

#include "backend/cpu/ops.h"
#include "backend/row_math.h"
#include "base/check.h"

namespace millrace::cpu {

void CpuOps::copy_heads(int32_t heads, int64_t width, Tensor in, Tensor out) {
  each_row(in.rows, heads * width,
           [&](int64_t r) { copy_row_heads(heads, width, in.row(r), in.cols / heads, out.row(r), out.cols / heads); });
}

void CpuOps::scale(const float* factors, int64_t count, Tensor inout) {
  each_row(inout.rows, inout.cols, [&](int64_t r) { millrace::scale_row(factors, count, inout.row(r), inout.cols); });
}

void CpuOps::mix(Tensor factors, float more, int32_t ins, int32_t outs, Tensor in, Tensor out) {
  each_row(in.rows, in.cols * outs,
           [&](int64_t r) { mix_row(factors.row(r), more, ins, outs, in.cols / ins, in.row(r), out.row(r)); });
}

void CpuOps::match_rms(Tensor like, Tensor inout) {
  each_row(inout.rows, inout.cols, [&](int64_t r) { match_row(like.row(r), like.cols, inout.row(r), inout.cols); });
}

void CpuOps::sparsify(float deviations, Tensor inout) {
  each_row(inout.rows, inout.cols, [&](int64_t r) { sparsify_row(deviations, inout.row(r), inout.cols); });
}

// A worker takes a head: brings its input into the form products read, then multiplies it, so many rows at a time as
// stay in its second cache. Few rows and few heads are cut by outputs too.
void CpuOps::linear_heads(const Weight& weight, Tensor in, Tensor out) {
  const LinearKernel& kernel = this->kernel(weight);
  const int64_t heads = weight.experts, start = mark(), workers = team_.workers();
  CHECK(heads > 0 && in.cols % heads == 0 && in.cols / heads >= weight.cols && out.cols / heads >= weight.rows,
        "{} heads of {} x {} from {} to {}", heads, weight.rows, weight.cols, in.cols, out.cols);
  const int64_t each = kernel.prepare != nullptr ? aligned(kernel.prepared_bytes(in.rows, weight.cols)) : 0;
  std::byte* prepared = each > 0 ? arena_.bytes(heads * each) : nullptr;
  if (prepared != nullptr) {
    const int64_t rows = kernel.rows_tile;
    each_row(heads, in.rows * weight.cols, [&](int64_t h) {
      const Tensor own = head_of(in, h, heads, weight.cols);
      for (int64_t row = 0; row < in.rows; row += rows)
        kernel.prepare(own, row, std::min(in.rows, row + rows), prepared + h * each);
    });
  }
  const int64_t tile = kernel.outputs_tile, cuts = std::max<int64_t>(1, 4 * workers / heads);
  const int64_t outputs = ((weight.rows + cuts - 1) / cuts + tile - 1) / tile * tile;
  const int64_t across = (weight.rows + outputs - 1) / outputs;
  auto work = [&](int64_t task, int worker) {
    const int64_t head = task / across, begin = task % across * outputs;
    const Weight one = weight.expert(head);
    for (int64_t row = 0; row < in.rows; row += kernel.part_rows) {
      kernel.product({&one, head_of(in, head, heads, weight.cols), each > 0 ? prepared + head * each : nullptr, in.rows,
                      row, std::min<int64_t>(kernel.part_rows, in.rows - row), head_of(out, head, heads, weight.rows),
                      begin, std::min(weight.rows, begin + outputs), worker_scratch(worker)});
    }
  };
  if (workers == 1) {
    for (int64_t task = 0; task < heads * across; ++task) work(task, 0);
  } else {
    team_.each(heads * across, work);
  }
  restore(start);
}

}  // namespace millrace::cpu
