#include "backend/cpu/ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace millrace::cpu {
namespace {

const float* shifted(const float* values, int64_t shift) { return values != nullptr ? values + shift : nullptr; }

}  // namespace

KvType kv_type(const KvForm& form) {
  if (!form.plain()) return kKvAny;
  return form.k == DType::f32 ? kKvF32 : form.k == DType::f16 ? kKvF16 : kKvBf16;
}

CpuOps::CpuOps(Team& team, const Kernels& kernels, Activations activations, Arena arena, std::byte* fixed)
    : team_(team),
      turns_(static_cast<size_t>(team.workers())),
      kernels_(kernels),
      activations_(activations),
      arena_(arena),
      fixed_(fixed) {
  rope_tables_.reserve(8);
}

void CpuOps::begin(const Step& step) {
  step_ = &step;
  arena_.begin_step();
  rope_tables_.clear();
}

void CpuOps::embed(const Weight& table, const int32_t* ids, int32_t offset, float scale, bool add, Tensor out) {
  const LinearKernel& packed = kernel(table);
  const Format& f = format(table.type);
  int64_t row_bytes = bytes_of(table.type, table.cols);
  int64_t start = mark();
  Tensor read = add ? scratch(out.rows, out.cols) : out;
  each_row(out.rows, out.cols, [&](int64_t r) {
    int64_t id = int64_t{ids[r]} + offset;
    CHECK(id >= 0, "row {} of a table of {}", id, table.rows);
    if (id >= table.rows) id = 0;
    if (table.layout == kPacked) {
      packed.unpack_row(table, id, read.row(r));
    } else {
      f.to_float(table.data + id * row_bytes, read.row(r), table.cols);
    }
    if (add) {
      kernels_.add(read.row(r), scale, out.row(r), out.cols);
    } else if (scale != 1) {
      for (int64_t i = 0; i < out.cols; ++i) out.row(r)[i] *= scale;
    }
  });
  restore(start);
}

void CpuOps::norm_row(const Norm& norm, int32_t parts, const float* in, float* out, int64_t cols) const {
  int64_t width = cols / parts;
  for (int64_t part = 0; part < parts; ++part) {
    int64_t shift = norm.width == width ? 0 : part * width;  // the weight repeats per part, or spans the row
    kernels_.norm(norm, shifted(norm.weight, shift), shifted(norm.bias, shift), in + part * width, out + part * width,
                  width);
  }
}

void CpuOps::norm(const Norm& norm, int32_t parts, Tensor in, Tensor out) {
  each_row(in.rows, in.cols, [&](int64_t r) { norm_row(norm, parts, in.row(r), out.row(r), in.cols); });
}

void CpuOps::activate(Activation activation, Tensor in, Tensor out) {
  each_row(in.rows, in.cols, [&](int64_t r) { kernels_.activate(activation, in.row(r), out.row(r), in.cols); });
}

void CpuOps::glu(Activation activation, Tensor gate, Tensor up, Tensor out) {
  each_row(gate.rows, gate.cols,
           [&](int64_t r) { kernels_.glu(activation, gate.row(r), up.row(r), out.row(r), gate.cols); });
}

void CpuOps::add(Tensor in, float scale, Tensor out) {
  each_row(in.rows, in.cols, [&](int64_t r) { kernels_.add(in.row(r), scale, out.row(r), in.cols); });
}

void CpuOps::clamp(float limit, Tensor inout) {
  each_row(inout.rows, inout.cols, [&](int64_t r) { kernels_.clamp(limit, inout.row(r), inout.cols); });
}

void CpuOps::finish_logits(float scale, float softcap, Tensor inout) {
  if (scale == 1 && softcap <= 0) return;
  each_row(inout.rows, inout.cols,
           [&](int64_t r) { kernels_.finish_logits(scale, softcap, inout.row(r), inout.cols); });
}

void CpuOps::gather(const int32_t* rows, Tensor in, Tensor out) {
  for (int64_t i = 0; i < out.rows; ++i)
    std::memcpy(out.row(i), in.row(rows[i]), static_cast<size_t>(in.cols) * sizeof(float));
}

// Angles in double: a float32 product would lose whole turns of the fast pairs at long contexts.
const CpuOps::RopeTable& CpuOps::rope_table(const Rope& rope, int64_t rows) {
  for (const RopeTable& table : rope_tables_) {
    if (table.rope.frequencies == rope.frequencies && table.rope.magnitude == rope.magnitude) return table;
  }
  int64_t half = rope.dims / 2;
  float* values =
      reinterpret_cast<float*>(arena_.until_next_step(rows * rope.dims * static_cast<int64_t>(sizeof(float))));
  RopeTable table{rope, values, values + rows * half};
  each_row(rows, half * 64, [&](int64_t r) {
    for (int64_t i = 0; i < half; ++i) {
      double angle = static_cast<double>(step_->positions[r]) * rope.frequencies[i];
      table.cos[r * half + i] = static_cast<float>(std::cos(angle) * rope.magnitude);
      table.sin[r * half + i] = static_cast<float>(std::sin(angle) * rope.magnitude);
    }
  });
  rope_tables_.push_back(table);
  return rope_tables_.back();
}

void CpuOps::rope_row(const RopeTable& table, int32_t heads, Tensor inout, int64_t row) const {
  int64_t half = table.rope.dims / 2, width = inout.cols / heads;
  for (int32_t head = 0; head < heads; ++head) {
    kernels_.rotate(table.cos + row * half, table.sin + row * half, table.rope.dims, table.rope.neighbours,
                    inout.row(row) + head * width);
  }
}

void CpuOps::rope(const Rope& rope, int32_t heads, Tensor inout) {
  if (rope.dims == 0) return;
  RopeTable table = rope_table(rope, inout.rows);
  table.rope = rope;
  each_row(inout.rows, inout.cols, [&](int64_t r) { rope_row(table, heads, inout, r); });
}

void CpuOps::store_row(Tensor k, Tensor v, const KvView& kv, int64_t row) const {
  auto store = kernels_.store[static_cast<size_t>(activations_)][kv_type(kv.form)];
  const PageTables& tables = step_->groups[static_cast<size_t>(kv.group)];
  int64_t position = step_->positions[row];
  int64_t page = tables.pages[int64_t{step_->sequence[row]} * tables.stride + position / kv.page_tokens];
  std::byte* base = kv.base + page * kv.page_stride;
  for (int64_t head = 0; head < kv.kv_heads; ++head) {
    KvPlace place{&kv, base + kv.k_offset + head * kv.page_tokens * kv_bytes(kv.form.k, kv.k_dim),
                  base + kv.v_offset + head * kv.page_tokens * kv_bytes(kv.form.v, kv.v_dim),
                  position % kv.page_tokens};
    store(place, k.row(row) + head * kv.k_dim, v.row(row) + head * kv.v_dim);
  }
}

void CpuOps::scale_row(const PositionScale& scale, Tensor inout, int64_t row) const {
  const int64_t steps = (int64_t{step_->positions[row]} + scale.offset) / scale.every;
  const auto by = static_cast<float>(1 + scale.factor * std::log1p(static_cast<double>(steps)));
  for (int64_t i = 0; i < inout.cols; ++i) inout.row(row)[i] *= by;
}

void CpuOps::scale_by_position(const PositionScale& scale, Tensor inout) {
  each_row(inout.rows, inout.cols, [&](int64_t r) { scale_row(scale, inout, r); });
}

void CpuOps::kv_store(Tensor k, Tensor v, const KvView& kv) {
  each_row(k.rows, k.cols + v.cols, [&](int64_t r) { store_row(k, v, kv, r); });
}

// ---- compositions: the same kernels, one pass over the rows
// ----------------------------------------------------------

void CpuOps::add_norm(Tensor in, float scale, Tensor inout, const Norm& norm, Tensor out) {
  each_row(in.rows, in.cols, [&](int64_t r) {
    kernels_.add(in.row(r), scale, inout.row(r), in.cols);
    norm_row(norm, 1, inout.row(r), out.row(r), in.cols);
  });
}

void CpuOps::finish_qkv(const QkvFinish& finish, int32_t heads, Tensor q, Tensor k, Tensor v, const KvView& kv) {
  RopeTable table{};
  if (finish.rope.dims > 0) {
    table = rope_table(finish.rope, q.rows);
    table.rope = finish.rope;
  }
  auto normalise = [&](int64_t r) {
    if (finish.q_norm != nullptr)
      norm_row(*finish.q_norm, finish.norm_per_head ? heads : 1, q.row(r), q.row(r), q.cols);
    if (finish.k_norm != nullptr)
      norm_row(*finish.k_norm, finish.norm_per_head ? kv.kv_heads : 1, k.row(r), k.row(r), k.cols);
  };
  each_row(q.rows, q.cols + k.cols + v.cols, [&](int64_t r) {
    if (finish.clip > 0) {
      for (Tensor tensor : {q, k, v}) kernels_.clamp(finish.clip, tensor.row(r), tensor.cols);
    }
    if (!finish.norm_after_rope) normalise(r);
    if (finish.rope.dims > 0) {
      rope_row(table, heads, q, r);
      rope_row(table, kv.kv_heads, k, r);
    }
    if (finish.norm_after_rope) normalise(r);
    if (finish.q_scale.every > 0) scale_row(finish.q_scale, q, r);
    store_row(k, v, kv, r);
  });
}

}  // namespace millrace::cpu
