// Attention, and what comes between the products of queries, keys and values and it.
#include <algorithm>

#include "backend/cuda/ops.h"
#include "backend/cuda/packed.h"

namespace millrace::cuda {
namespace {

int32_t as_int32(int64_t value) { return static_cast<int32_t>(value); }

// Whether two sequences of one row each are of one text: they have the same pages and follow one another. (Texts that
// begin alike may be taken for one: that costs time only.)
bool linked(const Step& step, int32_t s) {
  const int32_t row = step.first_row[s], before = step.first_row[s - 1];
  if (row != before + 1 || step.first_row[s + 1] != row + 1 || step.positions[row] != step.positions[before] + 1)
    return false;
  return std::all_of(step.groups.begin(), step.groups.end(), [&](const PageTables& tables) {
    return tables.pages[int64_t{s} * tables.stride] == tables.pages[int64_t{s - 1} * tables.stride];
  });
}

}  // namespace

// Which sequences are split over the machine: those of one row, if their partial results find room.
void CudaOps::plan_attention(const Step& step) {
  linked_ = false;
  for (int32_t s = 1; s < step.sequences && !linked_; ++s) linked_ = linked(step, s);
  int32_t* first_item = parts_.plan_host;
  int64_t chunks = 0;
  plan_.long_queries = plan_.long_rows = plan_.longest = 0;
  const bool countable = step.sequences < kMostSequences;
  for (int32_t s = 0; s < step.sequences; ++s) {
    const int32_t first = step.first_row[s], rows = step.first_row[s + 1] - first;
    if (countable) first_item[s] = as_int32(chunks);
    if (rows == 1 && countable) {
      chunks += attend_chunks(step.visible[first]);
      plan_.longest = std::max<int64_t>(plan_.longest, attend_chunks(step.visible[first]));
    } else {
      ++plan_.long_queries;
      plan_.long_rows += rows;
    }
  }
  if (countable) first_item[step.sequences] = as_int32(chunks);
  plan_.shorts = countable && chunks > 0;
  plan_.first_item = plan_device_;
  split_chunks_ = chunks;
}

StartRows::Turns CudaOps::new_table(const Rope& rope) {
  auto* numbers = reinterpret_cast<float*>(
      parts_.arena.until_next_step(int64_t{step_->rows} * rope.dims * static_cast<int64_t>(sizeof(float))));
  tables_.push_back({rope, numbers});
  return {rope.frequencies, rope.magnitude, rope.dims / 2, numbers};
}

// A rope that no step has had yet gets its table here; others had it made beside the embedding.
const float* CudaOps::rope_table(const Rope& rope) {
  auto alike = [&](const Rope& other) {
    return other.frequencies == rope.frequencies && other.magnitude == rope.magnitude;
  };
  for (const Table& table : tables_)
    if (alike(table.rope)) return table.numbers;
  if (std::none_of(ropes_.begin(), ropes_.end(), alike)) ropes_.push_back(rope);
  StartRows start;
  start.turns[start.turn_count++] = new_table(rope);
  start.rows = step_->rows;
  start.positions = on_device(step_->positions);
  start_rows(parts_.stream, start);
  return start.turns[0].table;
}

void CudaOps::rope(const Rope& rope, int32_t heads, Tensor inout) {
  flush();
  cuda::rope(parts_.stream, rope, rope_table(rope), heads, view(inout));
}

void CudaOps::kv_store(Tensor k, Tensor v, const KvView& kv) {
  flush();
  if (!kv.form.plain()) return store_coded(parts_.stream, device_step(&kv), view(k), view(v), kv);
  cuda::kv_store(parts_.stream, device_step(&kv), view(k), view(v), kv);
}

void CudaOps::finish_qkv(const QkvFinish& finish, int32_t heads, Tensor q, Tensor k, Tensor v, const KvView& kv) {
  if (finish.q_norm != nullptr || finish.k_norm != nullptr || finish.clip > 0 || finish.rope.dims == 0 ||
      finish.q_scale.every > 0 || (!kv.form.plain() && kv.v_dim == 0))
    return Ops::finish_qkv(finish, heads, q, k, v, kv);
  if (!kv.form.plain()) {
    flush();
    return finish_coded(parts_.stream, device_step(&kv), finish.rope, rope_table(finish.rope), heads, view(q), view(k),
                        view(v), kv);
  }
  if (!held_.qkv || !same(held_.qkv->q, q)) flush();
  held_.finish = HeldCalls::Finish{finish.rope, heads, q, k, v, kv};
}

void CudaOps::flush_finish() {
  if (held_.qkv) {
    const HeldCalls::Qkv held = *held_.qkv;
    held_.qkv.reset();
    for (const Tensor& out : {held.q, held.k, held.v}) result(out, Form::f32);
    multiply(held.work, held.in, held.seen, nullptr);
  }
  if (!held_.finish) return;
  const HeldCalls::Finish held = *held_.finish;
  held_.finish.reset();
  cuda::finish_qkv(parts_.stream, device_step(&held.kv), held.rope, rope_table(held.rope), held.heads, view(held.q),
                   view(held.k), view(held.v), held.kv);
}

// Products of queries, keys and values that are held back, and what finishes them, in one kernel, if it can be done.
void CudaOps::run_finishing(const Attention& attention, Tensor q, const KvView& kv) {
  if (!held_.qkv || !held_.finish || !same(held_.finish->q, q) || held_.finish->kv.base != kv.base) return;
  const HeldCalls::Finish& finish = *held_.finish;
  Products work = held_.qkv->work;
  const bool room = !packs_quantised(work.type) ||  // widened keys and values come in one piece
                    panels_of(work.parts[1].rows) * panel_bytes(DType::bf16, work.cols) <= kPartialBytes;
  const Form form = kv.form.k == DType::f16 ? Form::f16 : Form::bf16;
  if (!room || !fits(attention, kv) || !parts_.family->many_rows_finish(as_int32(q.rows), finish.rope, kv) ||
      result(q, form).form != form)
    return;
  work.parts[0].role = Products::Role::query;
  work.parts[1].role = Products::Role::key;
  work.parts[2].role = Products::Role::value;
  work.heads = {device_step(&finish.kv), finish.kv, rope_table(finish.rope), finish.rope.neighbours};
  const HeldCalls::Qkv held = *held_.qkv;
  held_.qkv.reset();
  held_.finish.reset();
  multiply(work, held.in, held.seen, nullptr);
}

void CudaOps::attend(const Attention& attention, Tensor q, const KvView& kv, Tensor out) {
  run_finishing(attention, q, kv);
  std::optional<HeldCalls::Finish> finish;
  // Where rows of a text are sequences of their own, each reads what those before it store: that is done first.
  if (held_.finish && !held_.qkv && same(held_.finish->q, q) && held_.finish->kv.base == kv.base && sees_itself_last_ &&
      !linked_ && fits(attention, kv) && attend_turns(held_.finish->rope)) {
    finish.swap(held_.finish);
  }
  flush();
  const DeviceStep step = device_step(&kv);
  AttendPlan plan = plan_;
  int64_t chunks = split_chunks_;
  if (recording_) {  // the same launches serve longer sequences later
    plan.longest = attend_chunks(step.page_stride * kv.page_tokens);
    if (kind_of(*step_).brief) plan.longest = std::min(plan.longest, kBriefChunks);
    chunks = step.sequences * plan.longest;
  }
  const bool room = attend_partial_floats(chunks, attention.heads, kv.k_dim) * 4 <= kPartialBytes &&
                    int64_t{step.sequences} * kv.kv_heads * 4 <= kFinishedBytes;
  if (!room) {
    plan.shorts = false;
    plan.long_queries = step_->sequences;
    plan.long_rows = step_->rows;
  }
  if (finish && plan.long_queries == 0) {
    plan.fresh = {rope_table(finish->rope), finish->rope.dims / 2, finish->rope.neighbours, view(finish->k),
                  view(finish->v)};
  } else if (finish) {
    held_.finish.swap(finish);
    flush_finish();
  }
  const View from = view(q), to = result(out, parts_.half);
  if (attention.value_width(kv) > kWidestValue) return note(cudaErrorInvalidValue);
  // That kernel reads any form, and it alone knows of positions that stay though the window has left them.
  const bool small = !kv.form.plain();
  if (attention.kept > 0 || (small && !fits(attention, kv)))
    return attend_coded(parts_.stream, step, attention, from, kv, to);
  if (!small && attend_latent_fits(attention, kv)) return attend_latent(parts_.stream, step, attention, from, kv, to);
  if (!small && !fits(attention, kv)) return attend_any(parts_.stream, step, attention, from, kv, to);
  const StretchesFor wanted = {attention.heads,    kv.kv_heads,           kv.k_dim,
                               kv.form.k,          attention.softcap > 0, attention.slopes != nullptr,
                               attention.scale > 0};
  plan.stretches_there = stretches_for_ == wanted;
  if (plan.shorts) stretches_for_ = wanted;
  if (small) {
    if (kv.form.turns_keys()) turn_queries(parts_.stream, attention.heads, from);
    return attend_small(parts_.stream, step, attention, from, kv, to, plan);
  }
  note(parts_.family->attend(parts_.stream, step, attention, from, kv, to, plan));
}

}  // namespace millrace::cuda
