#include "backend/cuda/ops.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "backend/cuda/packed.h"
#include "backend/cuda/weights.h"
#include "base/check.h"
#include "base/relax.h"

namespace millrace::cuda {
namespace {

int32_t as_int32(int64_t value) { return static_cast<int32_t>(value); }

Weight without_order(Weight weight) {
  weight.order = nullptr;
  return weight;
}
bool in_codes(const Weight& weight) { return weight.layout == kCodes; }
bool in_panels(const Weight& weight) { return weight.layout == kPanels || in_codes(weight); }
Form form_of(const Weight& weight) { return weight.type == DType::f16 ? Form::f16 : Form::bf16; }

Products::Product part_of(const Weight& weight, Tensor out) {
  return {.weights = weight.data,
          .bias = weight.bias,
          .out = reinterpret_cast<float*>(out.data),
          .out_stride = out.stride / static_cast<int64_t>(sizeof(float)),
          .rows = as_int32(weight.rows)};
}

}  // namespace

CudaOps::CudaOps(Parts parts) : parts_(std::move(parts)) {
  plan_.finished = reinterpret_cast<unsigned*>(parts_.fixed + kPartialBytes);
  plan_.stretches = parts_.fixed + kPartialBytes + kFinishedBytes;
  plan_device_ = reinterpret_cast<int32_t*>(plan_.stretches + kStretchBytes);
  best_device_ = plan_device_ + kMostSequences + 64;
  argmax_finished_ = reinterpret_cast<unsigned*>(best_device_ + kMostSequences);
  static_assert((3 * kMostSequences + 64) * 4 <= kMostSequences * 16);
  plan_.partials = reinterpret_cast<float*>(parts_.fixed);
}

CudaOps::~CudaOps() {
  cudaStreamSynchronize(parts_.stream);  // fetch() does not wait for the last kernel to end
  for (auto& [key, one] : recorded_) cudaGraphExecDestroy(one.graph);
}

// ---- steps

void CudaOps::begin(const Step& step) {
  step_ = &step;
  parts_.arena.begin_step();
  rooms_.clear();
  tables_.clear();
  stretches_for_ = {};
  held_ = {};
  best_queued_ = false;
  recording_ = std::exchange(to_record_, false) && plain(step);
  sees_itself_last_ = each_sees_itself_last(step);
  if (recording_) {
    const cudaError_t status = cudaStreamBeginCapture(parts_.stream, cudaStreamCaptureModeThreadLocal);
    if (status != cudaSuccess) recording_ = false;
  }
  plan_attention(step);
  queue_arrays();
}

// What is used of the step's arrays, and the plan.
void CudaOps::queue_arrays() {
  Arrays arrays;
  auto take = [&](const int32_t* from, int32_t* to, int64_t count) {
    if (to == nullptr || count == 0) return;
    if (arrays.count == Arrays::kMost) {
      bring_arrays(parts_.stream, arrays);
      arrays.count = 0;
    }
    arrays.all[arrays.count++] = {from, to, count};
  };
  const Step& step = *step_;
  for (const int32_t* array : {step.tokens, step.positions, step.visible, step.sequence})
    take(array, twin(array), step.rows);
  if (step.types != nullptr) take(step.types, twin(step.types), step.rows);
  take(step.first_row, twin(step.first_row), step.sequences + 1);
  take(step.wanted_rows, twin(step.wanted_rows), step.wanted);
  if (step.adapters != nullptr) {
    auto numbers = [](const float* array) { return reinterpret_cast<const int32_t*>(array); };  // as many bytes
    take(step.adapters, twin(step.adapters), step.rows);
    take(numbers(step.strengths), twin(numbers(step.strengths)), step.rows);
    take(step.wanted_adapters, twin(step.wanted_adapters), step.wanted);
    take(numbers(step.wanted_strengths), twin(numbers(step.wanted_strengths)), step.wanted);
  }
  for (const PageTables& tables : step.groups)
    take(tables.pages, twin(tables.pages), int64_t{step.sequences} * tables.stride);
  take(parts_.plan_host, plan_device_, std::min(step.sequences, kMostSequences - 1) + 1);
  bring_arrays(parts_.stream, arrays);
}

void CudaOps::queue_rows(Tensor rows, float* numbers) {
  if (rows.rows == 0) return;
  cudaMemcpy2DAsync(numbers, static_cast<size_t>(rows.cols) * sizeof(float), rows.data,
                    static_cast<size_t>(rows.stride), static_cast<size_t>(rows.cols) * sizeof(float),
                    static_cast<size_t>(rows.rows), cudaMemcpyDeviceToHost, parts_.stream);
}

std::string CudaOps::failure_text() const {
  if (read_lost_) return "CUDA: a product that had been added to a sum was read again (backend/cuda/held.h)";
  return failure_ == cudaSuccess ? "" : fmt::format("CUDA: a step failed: {}", cudaGetErrorString(failure_));
}

std::string CudaOps::finish() {
  const cudaError_t status = cudaStreamSynchronize(parts_.stream), launched = cudaGetLastError();
  note(status != cudaSuccess ? status : launched);
  return failure_text();
}

// Every best token says by itself that it is there, so nobody waits until the kernel that writes them has ended, which
// takes longer. A kernel that failed writes none: the stream knows.
cudaError_t CudaOps::see_best(int64_t rows) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPatience = std::chrono::microseconds(100);
  int64_t seen = 0;
  auto see = [&] {
    while (seen < rows && std::atomic_ref(host_best()[seen]).load(std::memory_order_relaxed) != kNoBest) ++seen;
    return seen == rows;
  };
  auto ask = Clock::now() + kPatience;
  while (!see()) {
    relax();
    if (Clock::now() < ask) continue;
    const cudaError_t status = cudaStreamQuery(parts_.stream);
    if (status == cudaSuccess) return see() ? cudaSuccess : cudaErrorUnknown;
    if (status != cudaErrorNotReady) return status;
    cudaGetLastError();  // it is kept as one
    ask = Clock::now() + kPatience;
  }
  return cudaSuccess;
}

std::string CudaOps::wait_for_best(int64_t rows) {
  note(cudaGetLastError());
  if (failure_ != cudaSuccess) return finish();
  note(see_best(rows));
  return failure_text();
}

std::string CudaOps::fetch(Tensor rows, float* numbers, int32_t* best) {
  if (best != nullptr && rows.rows > kMostSequences)
    return fmt::format("the best of {} rows was asked for, of at most {}", rows.rows, kMostSequences);
  queue_step(rows, best != nullptr);
  if (numbers != nullptr) queue_rows(rows, numbers);
  // Without a token to wait for, the step's arrays may still be on their way.
  const bool tokens_alone = numbers == nullptr && best != nullptr && rows.rows > 0;
  std::string failure = tokens_alone ? wait_for_best(rows.rows) : finish();
  if (best != nullptr) std::copy_n(host_best(), rows.rows, best);
  return failure;
}

// Behind the recorded step, not part of it: steps where nobody samples do without. Attention is over by then, so its
// partial results' room is free.
void CudaOps::queue_shortlist(Tensor rows, const ShortlistBatch& batch) {
  std::byte* at = parts_.fixed;
  ShortlistRoom room = {.best = best_device_, .found = batch.found, .tokens = batch.tokens};
  cudaMemcpyAsync(at, batch.asks, static_cast<size_t>(rows.rows) * sizeof(ShortlistAsk), cudaMemcpyHostToDevice,
                  parts_.stream);
  room.asks = reinterpret_cast<const ShortlistAsk*>(at);
  at += kShortlistRows * sizeof(ShortlistAsk);
  room.parts = at;
  at += shortlist_parts_bytes(kShortlistRows);
  room.listed = reinterpret_cast<ShortlistToken*>(at);
  shortlist_rows(parts_.stream, {rows.data, rows.stride, as_int32(rows.rows), as_int32(rows.cols), Form::f32}, room);
}

std::string CudaOps::fetch_shortlist(Tensor rows, const ShortlistBatch& batch, float* numbers) {
  static_assert(kShortlistRows <= kMostSequences &&
                kShortlistRows * (int64_t{kShortlistListed} * 8 + kShortlistParts * 32 + 64) <= kPartialBytes);
  if (rows.rows > kShortlistRows || rows.cols > kShortlistCols)
    return fmt::format("{} rows of {} numbers were to be shortlisted, of at most {} of {}", rows.rows, rows.cols,
                       kShortlistRows, kShortlistCols);
  queue_step(rows, true);
  queue_shortlist(rows, batch);
  for (int64_t i = 0; i < rows.rows; ++i) {
    if (batch.asks[i].kind == ShortlistKind::whole)
      queue_rows({rows.data + i * rows.stride, rows.type, 1, rows.cols, rows.stride}, numbers + i * rows.cols);
  }
  std::string failure = finish();
  for (int64_t i = 0; i < rows.rows; ++i) batch.found[i].tokens = batch.tokens + i * kShortlistTokens;
  return failure;
}

// ---- where activations lie

Tensor CudaOps::scratch(int64_t rows, int64_t cols) {
  if (held_.product) flush();  // its input may have been given back already, and this could be the same place
  Tensor tensor = parts_.arena.rows(rows, cols);
  rooms_.push_back({tensor.data, tensor.stride, std::max<int64_t>(1, rows * tensor.stride), Form::f32});
  return tensor;
}

void CudaOps::restore(int64_t mark) {
  flush_finish();
  parts_.arena.restore(mark);
  const Tensor here = parts_.arena.rows(0, 0);
  while (!rooms_.empty() && rooms_.back().base >= here.data) rooms_.pop_back();
}

CudaOps::Buffer* CudaOps::room_of(const std::byte* data) {
  for (auto room = rooms_.rbegin(); room != rooms_.rend(); ++room) {
    if (data >= room->base && data < room->base + room->bytes) return &*room;
  }
  return nullptr;
}

void CudaOps::lost(Tensor tensor) {
  if (Buffer* room = room_of(tensor.data)) room->gone = true;
}

View CudaOps::view(Tensor tensor) {
  View seen = {tensor.data, tensor.stride, as_int32(tensor.rows), as_int32(tensor.cols), Form::f32};
  const Buffer* room = room_of(tensor.data);
  if (room != nullptr && room->gone) read_lost_ = true;
  if (room == nullptr || room->form == Form::f32) return seen;
  const int64_t offset = tensor.data - room->base, row = offset / room->stride, col = offset % room->stride / 4;
  seen.data = room->base + row * room->stride + col * 2;
  seen.form = room->form;
  return seen;
}

View CudaOps::result(Tensor tensor, Form form) {
  Buffer* room = room_of(tensor.data);
  const bool parted = part_ && room != nullptr && room == room_of(part_->whole.data);
  const Tensor& all = parted ? part_->whole : tensor;
  const bool whole = room != nullptr && room->base == all.data && room->stride == all.stride &&
                     all.cols * 4 > room->stride - kAlignment;
  if (parted) part_->written = tensor, part_->rounds_to = whole ? form : Form::f32;
  if (room != nullptr) room->form = whole && !parted ? form : Form::f32, room->gone = false;
  return view(tensor);
}

DeviceStep CudaOps::device_step(const KvView* kv) const {
  DeviceStep step = {.rows = step_->rows,
                     .sequences = step_->sequences,
                     .positions = on_device(step_->positions),
                     .visible = on_device(step_->visible),
                     .sequence = on_device(step_->sequence),
                     .first_row = on_device(step_->first_row),
                     .linked = linked_ ? kMostLinked : 0};
  if (kv != nullptr) {
    const PageTables& tables = step_->groups[static_cast<size_t>(kv->group)];
    step.pages = on_device(tables.pages);
    step.page_stride = tables.stride;
  }
  return step;
}

// ---- products

// Quantised weights of many rows are widened first, as much at a time as there is room for.
void CudaOps::multiply_widened(Products work) {
  const int64_t wide = panel_bytes(DType::bf16, work.cols), shortlist_bytes = panel_bytes(work.type, work.cols);
  const int64_t most = kPartialBytes / wide / (work.gated ? 2 : 1);  // panels
  if (most == 0) return note(cudaErrorInvalidValue);                 // millions of inputs
  auto* room = reinterpret_cast<std::byte*>(plan_.partials);
  const Products whole = work;
  work.type = DType::bf16;
  work.weights_just_made = true;
  for (int32_t i = 0; i < (work.gated ? 1 : whole.count); ++i) {
    work.count = whole.gated ? 2 : 1;
    for (int64_t first = 0; first < panels_of(whole.parts[i].rows); first += most) {
      const int64_t panels = std::min(most, panels_of(whole.parts[i].rows) - first), output = first * kPanel;
      for (int32_t side = 0; side < work.count; ++side) {
        Products::Product part = whole.parts[i + side];
        std::byte* to = room + side * panels * wide;
        widen(parts_.stream, whole.type, part.weights + first * shortlist_bytes, panels, work.cols, to);
        part.weights = to;
        part.rows = std::min<int32_t>(as_int32(panels * kPanel), part.rows - as_int32(output));
        if (part.bias != nullptr) part.bias += output;
        if (part.out != nullptr)
          part.out = (work.gated && work.out_form != Form::f32) || part.role == Products::Role::query
                         ? reinterpret_cast<float*>(reinterpret_cast<uint16_t*>(part.out) + output)
                         : part.out + output;
        work.parts[side] = part;
      }
      if (whole.residual != nullptr) work.residual = whole.residual + output;
      note(parts_.family->many_rows(parts_.stream, work));
    }
  }
}

void CudaOps::multiply(Products work, Tensor in, std::optional<View> seen, const Residual* residual) {
  const Form form = work.type == DType::f16 ? Form::f16 : Form::bf16;
  if (residual != nullptr) {
    work.residual = reinterpret_cast<float*>(residual->to.data);
    work.residual_stride = residual->to.stride / static_cast<int64_t>(sizeof(float));
    work.residual_scale = residual->scale;
  }
  const int32_t rows = as_int32(in.rows);
  int64_t outputs = 0;
  for (int32_t i = 0; i < (work.gated ? 1 : work.count); ++i) outputs += outputs_of(work.parts[i]);
  const Family& family = *parts_.family;
  if (work.type == DType::fp8_128 || work.type == DType::int8_128) {
    if (work.coded.data == nullptr) work.coded = code_inputs(work.type, in);
    work.segments = fp8_segments_of(outputs, work.cols);
    const auto rows_of = work.type == DType::fp8_128 ? family.fp8_rows : family.int8_rows;
    return note(rows_of(parts_.stream, work));
  }
  work.segments = segments_of(work.type, outputs, work.cols);
  if (family.few_rows_fit(rows, work.cols, false)) {
    // In another form than activations have, a norm by itself would be rounded twice: bits would depend on the rows.
    if (held_.norm && same(held_.norm->out, in) && form == parts_.half && family.few_rows_fit(rows, work.cols, true))
      work.normed = result(in, form);
    if (held_.norm && work.normed.data != nullptr && work.normed.form == form) {
      const HeldCalls::NormCall norm = *held_.norm;
      held_.norm.reset();
      work.norm = &norm.norm;
      work.in = view(norm.in);
      return parts_.family->few_rows(parts_.stream, work);
    }
    flush_norm();
    work.in = seen ? *seen : view(in);
    return parts_.family->few_rows(parts_.stream, work);
  }
  flush_norm();
  const int64_t start = parts_.arena.mark();
  work.in = seen ? *seen : view(in);
  if (work.in.form != form) {
    const Tensor room = parts_.arena.rows(in.rows, in.cols);
    const View converted = {room.data, room.stride, rows, as_int32(in.cols), form};
    convert(parts_.stream, work.in, converted);
    work.in = converted;
  }
  if (packs_quantised(work.type)) {
    multiply_widened(work);
  } else {
    note(parts_.family->many_rows(parts_.stream, work));
  }
  parts_.arena.restore(start);
}

void CudaOps::run_linear(const Weight& weight, Tensor in, std::optional<View> seen, Tensor out,
                         const Residual* residual, const CodedRows& coded) {
  result(out, Form::f32);
  if (in_panels(weight)) {
    if (residual != nullptr) lost(out);
    Products work = {.parts = {part_of(weight, out)}, .count = 1, .type = weight.type, .cols = as_int32(weight.cols)};
    work.coded = coded;
    return multiply(work, in, seen, residual);
  }
  flush_norm();
  any_rows(parts_.stream, weight, seen ? *seen : view(in), view(out));
  if (residual != nullptr) cuda::add(parts_.stream, view(out), residual->scale, view(residual->to));
}

void CudaOps::flush_norm() {
  if (!held_.norm) return;
  const HeldCalls::NormCall held = *held_.norm;
  held_.norm.reset();
  const View in = view(held.in);
  cuda::norm(parts_.stream, held.norm, 1, in, result(held.out, parts_.half));
}

void CudaOps::run_held(const Residual* residual) {
  const HeldCalls::Product held = *held_.product;
  held_.product.reset();
  run_linear(held.weight, held.in, held.seen, held.out, residual, held.coded);
}

void CudaOps::flush() {
  if (held_.product) run_held(nullptr);
  flush_norm();
  flush_finish();
}

// All but a norm that the next product may take up.
void CudaOps::flush_held() {
  if (held_.product) flush();
  flush_finish();
}

void CudaOps::linear(const Weight& weight, Tensor in, Tensor out) {
  flush_held();
  if (weight.order != nullptr) {
    const int64_t start = mark();
    const Tensor ordered = in_order(weight.order, in);
    run_linear(without_order(weight), ordered, std::nullopt, out, nullptr);
    return restore(start);
  }
  if (in_codes(weight)) {
    const CodedRows coded = code_inputs(weight.type, in);
    held_.product = HeldCalls::Product{weight, in, out, view(in), coded};
    return;
  }
  if (held_.norm && same(held_.norm->out, in)) {
    held_.product = HeldCalls::Product{weight, in, out, std::nullopt};
    if (in_panels(weight) && form_of(weight) != parts_.half) flush();  // as below
    return;
  }
  const View seen = view(in);
  held_.product = HeldCalls::Product{weight, in, out, seen};
  // A copy in another form needs room, which the input's may overlap once it is given back: not later, then.
  if (in_panels(weight) && seen.form != form_of(weight)) flush();
}

void CudaOps::linear_qkv(const Weight& q, const Weight& k, const Weight& v, Tensor in, Tensor q_out, Tensor k_out,
                         Tensor v_out) {
  flush_held();
  if (q.order != k.order || q.order != v.order) return Ops::linear_qkv(q, k, v, in, q_out, k_out, v_out);
  if (q.order != nullptr) {
    const int64_t start = mark();
    const Tensor ordered = in_order(q.order, in);
    linear_qkv(without_order(q), without_order(k), without_order(v), ordered, q_out, k_out, v_out);
    flush();  // before the room is given back
    return restore(start);
  }
  if (!in_panels(q) || !in_panels(k) || !in_panels(v) || q.type != k.type || q.type != v.type) {
    run_linear(q, in, std::nullopt, q_out, nullptr);
    run_linear(k, in, std::nullopt, k_out, nullptr);
    return run_linear(v, in, std::nullopt, v_out, nullptr);
  }
  const Products work = {.parts = {part_of(q, q_out), part_of(k, k_out), part_of(v, v_out)},
                         .count = 3,
                         .type = q.type,
                         .cols = as_int32(q.cols)};
  if (plan_.long_queries > 0 && !held_.norm && !in_codes(q) && view(in).form == form_of(q)) {
    held_.qkv = HeldCalls::Qkv{work, in, q_out, k_out, v_out, view(in)};
    return;
  }
  for (const Tensor& out : {q_out, k_out, v_out}) result(out, Form::f32);
  multiply(work, in, std::nullopt, nullptr);
}

void CudaOps::linear_glu(const Weight& gate, const Weight& up, Activation activation, Tensor in, Tensor out) {
  flush_held();
  if (gate.order != up.order) return Ops::linear_glu(gate, up, activation, in, out);
  if (gate.order != nullptr) {
    const int64_t start = mark();
    const Tensor ordered = in_order(gate.order, in);
    linear_glu(without_order(gate), without_order(up), activation, ordered, out);
    return restore(start);
  }
  if (!in_panels(gate) || !in_panels(up) || gate.type != up.type) {
    flush_norm();
    const int64_t start = mark();
    Tensor gated = scratch(in.rows, gate.rows);
    run_linear(gate, in, std::nullopt, gated, nullptr);
    run_linear(up, in, std::nullopt, out, nullptr);
    const View other = view(out);
    cuda::glu(parts_.stream, activation, view(gated), other, other);
    return restore(start);
  }
  const View to = result(out, form_of(gate));
  multiply({.parts = {part_of(gate, out), part_of(up, out)},
            .count = 2,
            .type = gate.type,
            .cols = as_int32(gate.cols),
            .gated = true,
            .activation = activation,
            .out_form = to.form},
           in, std::nullopt, nullptr);
}

// ---- everything else

void CudaOps::embed(const Weight& table, const int32_t* ids, int32_t offset, float scale, bool add, Tensor out) {
  flush();
  StartRows start = {.table = table,
                     .ids = on_device(ids),
                     .offset = offset,
                     .scale = scale,
                     .add = add,
                     .out = add ? view(out) : result(out, Form::f32),
                     .rows = step_->rows,
                     .positions = on_device(step_->positions)};
  if (tables_.empty()) {
    for (size_t i = 0; i < std::min<size_t>(ropes_.size(), StartRows::kMostTurns); ++i)
      start.turns[start.turn_count++] = new_table(ropes_[i]);
  }
  start_rows(parts_.stream, start);
}

void CudaOps::norm(const Norm& norm, int32_t parts, Tensor in, Tensor out) {
  flush();
  if (in.cols / parts > kWidestNorm) return note(cudaErrorInvalidValue);
  const View from = view(in);
  const bool in_place = in.data == out.data;
  if (parts == 1 && !in_place && in.rows <= kFusedNormRows && from.form == Form::f32) {
    held_.norm = HeldCalls::NormCall{norm, in, out};
    return;
  }
  cuda::norm(parts_.stream, norm, parts, from,
             in_place ? view(out) : result(out, parts == 1 ? parts_.half : Form::f32));
}

void CudaOps::add_norm(Tensor in, float scale, Tensor inout, const Norm& norm, Tensor out) {
  if (held_.product && same(held_.product->out, in)) {
    const Residual residual = {inout, scale};
    run_held(&residual);
    return this->norm(norm, 1, inout, out);
  }
  flush();
  if (in.cols > kWidestNorm) return note(cudaErrorInvalidValue);
  const View from = view(in), stream = view(inout);
  cuda::add_norm(parts_.stream, from, scale, stream, norm, result(out, parts_.half));
}

void CudaOps::add(Tensor in, float scale, Tensor out) {
  if (held_.product && same(held_.product->out, in)) {
    const Residual residual = {out, scale};
    return run_held(&residual);
  }
  flush();
  cuda::add(parts_.stream, view(in), scale, view(out));
}

void CudaOps::activate(Activation activation, Tensor in, Tensor out) {
  flush();
  const View from = view(in);
  cuda::activate(parts_.stream, activation, from, in.data == out.data ? from : result(out, Form::f32));
}

void CudaOps::glu(Activation activation, Tensor gate, Tensor up, Tensor out) {
  flush();
  const View first = view(gate), second = view(up);
  const bool in_place = out.data == gate.data || out.data == up.data;
  cuda::glu(parts_.stream, activation, first, second, in_place ? view(out) : result(out, Form::f32));
}

void CudaOps::clamp(float limit, Tensor inout) {
  flush();
  cuda::clamp(parts_.stream, limit, view(inout));
}

void CudaOps::gather(const int32_t* rows, Tensor in, Tensor out) {
  flush();
  const View from = view(in);
  cuda::gather(parts_.stream, on_device(rows), from, result(out, from.form));
}

void CudaOps::finish_logits(float scale, float softcap, Tensor inout) {
  flush();
  cuda::finish_logits(parts_.stream, scale, softcap, view(inout));
}

}  // namespace millrace::cuda
