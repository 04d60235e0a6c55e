// Experts on the team. Each expert's rows are brought together and multiplied by the kernels of ordinary products,
// whose bits do not depend on how many rows there are. All experts' parts are one list of tasks, so that one row with a
// few experts keeps every worker busy, and so do many rows of which one expert has most.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/ops.h"
#include "base/check.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kTaskBytes = 64 << 10;  // weight bytes of a task worth handing out
constexpr int64_t kTasksPerWorker = 16;   // experts differ in rows, so tasks do in length
constexpr int64_t kRowsPerRead = 8;       // rows after which a weight read once is bound by arithmetic

int64_t up_to(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

Tensor rows_from(Tensor all, int64_t first, int64_t count) {
  all.data += first * all.stride;
  all.rows = count;
  return all;
}

}  // namespace

void CpuOps::route(const Router& router, Tensor logits, const Routing& routing) {
  const int64_t room = int64_t{router.experts} * 2 * static_cast<int64_t>(sizeof(float));
  CHECK(room <= kWorkerBytes, "{} experts", router.experts);
  auto each = [&](int64_t row, int worker) {
    route_row(router, logits.row(row), routing.expert + row * routing.chosen, routing.weight + row * routing.chosen,
              reinterpret_cast<float*>(worker_scratch(worker)));
  };
  if (logits.rows * router.experts * 16 < kWorthForking) {
    for (int64_t r = 0; r < logits.rows; ++r) each(r, 0);
  } else {
    team_.each(logits.rows, each);
  }
  sort_pairs(routing);
}

// Which experts have rows, where these lie, and the input in the form that products read it. `experts` of them: a rank
// may have some only, of which routing.first says where they lie.
void CpuOps::bring_together(const LinearKernel& kernel, const Routing& routing, int32_t experts, ExpertInput input,
                            Tensor in) {
  const bool one_row = input == ExpertInput::rows && routing.rows == 1;  // all experts read it, and one form of it
  Tensor pairs = in;
  if (input == ExpertInput::rows && !one_row) {
    pairs = scratch(routing.pairs(), in.cols);
    each_row(routing.pairs(), in.cols, [&](int64_t p) {
      std::memcpy(pairs.row(p), in.row(routing.row[p]), static_cast<size_t>(in.cols) * sizeof(float));
    });
  }
  segments_.clear();
  tiles_of_pairs_.clear();
  for (int32_t e = 0; e < experts; ++e) {
    const int64_t first = routing.first[e], count = routing.first[e + 1] - first;
    if (count == 0) continue;
    Segment segment = {e, first, one_row ? in : rows_from(pairs, first, count), nullptr};
    if (kernel.prepare != nullptr) {
      const bool again = one_row && !segments_.empty();
      segment.prepared = again ? segments_.front().prepared : arena_.bytes(kernel.prepared_bytes(count, in.cols));
      for (int64_t r = 0; r < count && !again; r += kernel.rows_tile)
        tiles_of_pairs_.push_back({static_cast<int32_t>(segments_.size()), static_cast<int32_t>(r)});
    }
    segments_.push_back(segment);
  }
  each_row(static_cast<int64_t>(tiles_of_pairs_.size()), kernel.rows_tile * in.cols, [&](int64_t t) {
    const auto [index, row] = tiles_of_pairs_[static_cast<size_t>(t)];
    const Segment& segment = segments_[static_cast<size_t>(index)];
    kernel.prepare(segment.in, row, std::min<int64_t>(segment.in.rows, row + kernel.rows_tile), segment.prepared);
  });
}

// Tasks of every expert: some of its rows and some of its outputs.
void CpuOps::list_tasks(const LinearKernel& kernel, const Weight& weight, int64_t pairs) {
  const auto touched = static_cast<int64_t>(segments_.size()), workers = int64_t{team_.workers()};
  const int64_t rows = std::clamp<int64_t>(pairs / std::max<int64_t>(1, touched), 1, kRowsPerRead);
  const int64_t wanted =
      std::clamp<int64_t>(touched * weight.stride * rows / kTaskBytes, workers, workers * kTasksPerWorker);
  const int64_t most = std::clamp<int64_t>(kernel.part_values / weight.cols, kernel.part_rows,
                                           std::max<int64_t>(kernel.part_rows, LinearKernel::kMostPartRows));
  const int64_t across = std::max<int64_t>(1, (wanted + touched - 1) / touched);
  const int64_t outputs = up_to((weight.rows + across - 1) / across, kernel.outputs_tile);
  expert_tasks_.clear();
  for (int32_t index = 0; index < static_cast<int32_t>(touched); ++index) {
    const int64_t count = segments_[static_cast<size_t>(index)].in.rows;
    const int64_t row_parts = (count + most - 1) / most;
    const int64_t step = up_to((count + row_parts - 1) / row_parts, kernel.rows_tile);
    for (int64_t begin = 0; begin < weight.rows; begin += outputs) {
      for (int64_t row = 0; row < count; row += step) expert_tasks_.push_back({index, begin, outputs, row, step});
    }
  }
}

template <class F>
void CpuOps::multiply_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in, Tensor out,
                              F&& finish) {
  CHECK(in.cols == weight.cols && out.cols == weight.rows && routing.experts >= weight.experts,
        "{} experts of {} x {} from {} to {} of {}", weight.experts, weight.rows, weight.cols, in.cols, out.cols,
        routing.experts);
  const int64_t start = mark();
  const LinearKernel& kernel = this->kernel(weight);
  bring_together(kernel, routing, weight.experts, input, in);
  if (segments_.empty()) return restore(start);  // no row of this step has an expert of this rank
  list_tasks(kernel, weight, routing.pairs());
  auto work = [&](int64_t index, int worker) {
    const ExpertTask& task = expert_tasks_[static_cast<size_t>(index)];
    const Segment& segment = segments_[static_cast<size_t>(task.segment)];
    const Weight one = weight.expert(segment.expert);
    const LinearPart part{&one,
                          segment.in,
                          segment.prepared,
                          segment.in.rows,
                          task.first_row,
                          std::min(task.rows, segment.in.rows - task.first_row),
                          rows_from(out, segment.first, segment.in.rows),
                          task.begin,
                          std::min(weight.rows, task.begin + task.outputs),
                          worker_scratch(worker)};
    kernel.product(part);
    finish(segment, part);
  };
  const auto tasks = static_cast<int64_t>(expert_tasks_.size());
  if (tasks == 1) {
    work(0, 0);
  } else {
    team_.each(tasks, work);
  }
  restore(start);
}

void CpuOps::linear_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in, Tensor out) {
  multiply_experts(weight, routing, input, in, out, [](const Segment&, const LinearPart&) {});
}

// A part of the gate is multiplied by the worker that has just computed the same part of `up`.
void CpuOps::linear_experts_glu(const Weight& gate, const Weight& up, Activation activation, const GluLimit& limit,
                                const Routing& routing, ExpertInput input, Tensor in, Tensor out) {
  if (gate.type != up.type || gate.layout != up.layout)
    return Ops::linear_experts_glu(gate, up, activation, limit, routing, input, in, out);
  const int64_t start = mark();
  Tensor gated = scratch(routing.pairs(), gate.rows);
  multiply_experts(gate, routing, input, in, gated, [&](const Segment& segment, const LinearPart& part) {
    const Weight one = up.expert(segment.expert);
    LinearPart second = part;
    second.weight = &one;
    second.out = rows_from(out, segment.first, part.out.rows);
    kernel(up).product(second);
    for (int64_t r = part.first_row; r < part.first_row + part.rows; ++r) {
      float* to = second.out.row(r) + part.begin;
      gate_row(activation, limit, part.out.row(r) + part.begin, to, to, part.end - part.begin);
    }
  });
  restore(start);
}

void CpuOps::gate_row(Activation activation, const GluLimit& limit, const float* gate, const float* up, float* out,
                      int64_t count) const {
  if (limit.limit <= 0) return kernels_.glu(activation, gate, up, out, count);
  // g * sigmoid(slope * g) is silu(slope * g) / slope.
  constexpr int64_t kSome = 256;
  float gated[kSome];
  for (int64_t first = 0; first < count; first += kSome) {
    const int64_t some = std::min(kSome, count - first);
    for (int64_t i = 0; i < some; ++i) gated[i] = limit.slope * std::min(gate[first + i], limit.limit);
    kernels_.activate(Activation::silu, gated, gated, some);
    for (int64_t i = 0; i < some; ++i) {
      const float u = std::clamp(up[first + i], -limit.limit, limit.limit);
      out[first + i] = (u + limit.shift) * gated[i] / limit.slope;
    }
  }
}

void CpuOps::glu_limited(const GluLimit& limit, Tensor gate, Tensor up, Tensor out) {
  each_row(gate.rows, gate.cols,
           [&](int64_t r) { gate_row(Activation::silu, limit, gate.row(r), up.row(r), out.row(r), gate.cols); });
}

void CpuOps::spread(const Routing& routing, Tensor in, Tensor out) {
  each_row(routing.pairs(), in.cols, [&](int64_t i) {
    const float* from = in.row(i / routing.chosen);
    float* to = out.row(routing.place[i]);
    for (int64_t c = 0; c < in.cols; ++c) to[c] = routing.weight[i] * from[c];
  });
}

void CpuOps::combine(const Routing& routing, bool weighted, Tensor in, Tensor out) {
  each_row(routing.rows, out.cols * routing.chosen, [&](int64_t r) {
    std::fill_n(out.row(r), out.cols, 0.0f);
    for (int64_t i = r * routing.chosen; i < (r + 1) * routing.chosen; ++i)
      kernels_.add(in.row(routing.place[i]), weighted ? routing.weight[i] : 1.0f, out.row(r), out.cols);
  });
}

void CpuOps::add_gated(Tensor in, Tensor gate, Tensor out) {
  each_row(in.rows, in.cols,
           [&](int64_t r) { kernels_.add(in.row(r), 1 / (1 + std::exp(-gate.row(r)[0])), out.row(r), in.cols); });
}

}  // namespace millrace::cpu
