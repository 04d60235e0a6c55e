// Products on the team: which rows and outputs make a part, and what is multiplied together because it shares its
// input.
#include <algorithm>

#include "backend/cpu/ops.h"
#include "backend/row_math.h"
#include "base/check.h"

namespace millrace::cpu {
namespace {

constexpr int64_t kPartBytes = 64 << 10;  // weight bytes of a part worth handing out
constexpr int64_t kPartsPerWorker = 4;    // so that a worker held up does not hold up all
constexpr int64_t kRowsPerRead = 8;       // rows after which a weight read once is bound by arithmetic

int64_t up_to(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Outputs of a part: enough work to be worth it, and as many parts for one worker as for another. A weight met by
// several rows is as much work as several weights, until arithmetic has hidden the reading of it.
int64_t outputs_of_part(const Weight& weight, const LinearKernel& kernel, int64_t rows, int64_t row_parts,
                        int workers) {
  int64_t work = weight.bytes * std::min<int64_t>(rows, kRowsPerRead) / kPartBytes;
  int64_t parts = std::clamp<int64_t>(work, workers, workers * kPartsPerWorker) / workers * workers;
  int64_t across = std::max<int64_t>(1, (parts + row_parts - 1) / row_parts);
  while (across * row_parts % workers != 0) ++across;
  return up_to((weight.rows + across - 1) / across, kernel.outputs_tile);
}

// Parts of about the same number of rows, as few as stay in a core's second cache.
int64_t parts_of_rows(const LinearKernel& kernel, Tensor in) {
  int64_t most = std::clamp<int64_t>(kernel.part_values / in.cols, kernel.part_rows,
                                     std::max<int64_t>(kernel.part_rows, LinearKernel::kMostPartRows));
  return std::max<int64_t>(1, (in.rows + most - 1) / most);
}

}  // namespace

const LinearKernel& CpuOps::kernel(const Weight& weight) const {
  return kernels_.linear[static_cast<size_t>(activations_)][static_cast<size_t>(weight.type)];
}

const std::byte* CpuOps::prepare(const LinearKernel& kernel, Tensor in) {
  if (kernel.prepare == nullptr) return nullptr;
  std::byte* prepared = arena_.bytes(kernel.prepared_bytes(in.rows, in.cols));
  int64_t tile = kernel.rows_tile, tiles = (in.rows + tile - 1) / tile;
  each_row(tiles, tile * in.cols,
           [&](int64_t t) { kernel.prepare(in, t * tile, std::min(in.rows, (t + 1) * tile), prepared); });
  return prepared;
}

Tensor CpuOps::in_order(const int32_t* order, Tensor in) {
  if (order == nullptr) return in;
  const Tensor out = scratch(in.rows, in.cols);
  each_row(in.rows, in.cols, [&](int64_t r) {
    const float* from = in.row(r);
    float* to = out.row(r);
    for (int64_t i = 0; i < in.cols; ++i) to[i] = from[order[i]];
  });
  return out;
}

template <class F>
void CpuOps::multiply(std::span<const Product> products, Tensor in, F&& finish) {
  const LinearKernel& first = kernel(*products[0].weight);
  int64_t start = mark();
  in = in_order(products[0].weight->order, in);
  const std::byte* prepared = prepare(first, in);
  int64_t row_parts = parts_of_rows(first, in), rows = up_to((in.rows + row_parts - 1) / row_parts, first.rows_tile);
  row_parts = (in.rows + rows - 1) / rows;

  // A worker has as many parts of a product as any other, one after another: of each product in turn, outputs before
  // rows.
  constexpr size_t kMost = 3;
  CHECK(products.size() <= kMost);
  int64_t outputs[kMost], ends[kMost], shares[kMost], share = 0, all = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    const Weight& weight = *products[i].weight;
    outputs[i] = outputs_of_part(weight, kernel(weight), in.rows, row_parts, team_.workers());
    int64_t parts = (weight.rows + outputs[i] - 1) / outputs[i] * row_parts;
    shares[i] = (parts + team_.workers() - 1) / team_.workers();
    share += shares[i], all += parts;
    ends[i] = share;
  }
  auto multiply_part = [&](int64_t whose, int64_t task, int worker) {
    size_t i = 0;
    while (task >= ends[i]) ++i;
    int64_t within = (whose + 1) * shares[i] - (ends[i] - task);
    const Weight& weight = *products[i].weight;
    if (within / row_parts * outputs[i] >= weight.rows) return;
    LinearPart part{&weight,
                    in,
                    prepared,
                    in.rows,
                    within % row_parts * rows,
                    0,
                    products[i].out,
                    within / row_parts * outputs[i],
                    0,
                    worker_scratch(worker)};
    part.rows = std::min(rows, in.rows - part.first_row);
    part.end = std::min(weight.rows, part.begin + outputs[i]);
    kernel(weight).product(part);
    finish(part);
  };
  all == 1 ? multiply_part(0, 0, 0) : each_in_turn(share, multiply_part);
  restore(start);
}

void CpuOps::linear(const Weight& weight, Tensor in, Tensor out) {
  CHECK(in.cols == weight.cols && out.cols == weight.rows, "a matrix of {} x {} from {} to {}", weight.rows,
        weight.cols, in.cols, out.cols);
  Product product{&weight, out};
  multiply({&product, 1}, in, [](const LinearPart&) {});
}

void CpuOps::linear_qkv(const Weight& q, const Weight& k, const Weight& v, Tensor in, Tensor q_out, Tensor k_out,
                        Tensor v_out) {
  Product products[] = {{&q, q_out}, {&k, k_out}, {&v, v_out}};
  // Products whose kernels read the input in the same form and order go together.
  auto form = [&](const Product& of) {
    return std::pair(reinterpret_cast<uintptr_t>(kernel(*of.weight).prepare),
                     reinterpret_cast<uintptr_t>(of.weight->order));
  };
  std::stable_sort(std::begin(products), std::end(products),
                   [&](const Product& a, const Product& b) { return form(a) < form(b); });
  for (size_t begin = 0; begin < 3;) {
    size_t end = begin + 1;
    while (end < 3 && form(products[end]) == form(products[begin])) ++end;
    multiply({products + begin, end - begin}, in, [](const LinearPart&) {});
    begin = end;
  }
}

// A part of the gate is multiplied by the worker that has just computed the same part of `up`.
void CpuOps::linear_glu(const Weight& gate, const Weight& up, Activation activation, Tensor in, Tensor out) {
  if (gate.type != up.type || gate.layout != up.layout || gate.order != up.order)
    return Ops::linear_glu(gate, up, activation, in, out);
  int64_t start = mark();
  Tensor gated = scratch(in.rows, gate.rows);
  Product product{&gate, gated};
  multiply({&product, 1}, in, [&](const LinearPart& part) {
    LinearPart second = part;
    second.weight = &up;
    second.out = out;
    kernel(up).product(second);
    for (int64_t r = part.first_row; r < part.first_row + part.rows; ++r) {
      kernels_.glu(activation, gated.row(r) + part.begin, out.row(r) + part.begin, out.row(r) + part.begin,
                   part.end - part.begin);
    }
  });
  restore(start);
}

// Row by row: a worker that has the first half of a row goes on with the other. Rows of an adapter follow each other,
// so that what it is made of is still near.
void CpuOps::linear_delta(const RowDeltas& deltas, Tensor in, Tensor inout) {
  const int64_t ins = deltas.ids != nullptr ? 0 : in.cols;
  delta_rows_.clear();
  for (int32_t r = 0; r < inout.rows; ++r)
    if (deltas.adapters[r] >= 0 && deltas.changes[deltas.adapters[r]].rank > 0) delta_rows_.push_back(r);
  std::sort(delta_rows_.begin(), delta_rows_.end(), [&](int32_t a, int32_t b) {
    return deltas.adapters[a] != deltas.adapters[b] ? deltas.adapters[a] < deltas.adapters[b] : a < b;
  });
  each_row(std::ssize(delta_rows_), deltas.rank * (ins + inout.cols) / 8, [&](int64_t index) {
    const int64_t r = delta_rows_[static_cast<size_t>(index)];
    const Delta& delta = deltas.changes[deltas.adapters[r]];
    float low[kMostAdapterRank];
    if (deltas.ids != nullptr) {
      for (int32_t j = 0; j < delta.rank; ++j)
        low[j] = delta_number(delta.numbers, delta.down, int64_t{deltas.ids[r]} * delta.rank + j);
    } else {
      kernels_.delta_down(delta, in.row(r), ins, low);
    }
    kernels_.delta_up(delta, low, inout.cols, deltas.strengths[r], inout.row(r));
  });
}

}  // namespace millrace::cpu
