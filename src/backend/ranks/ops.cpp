#include "backend/ranks/ops.h"

#include <algorithm>

#include "base/check.h"

namespace millrace {
namespace {

Tensor row_of(Tensor all, int64_t row) { return {all.data + row * all.stride, all.type, 1, all.cols, all.stride}; }

// Whether a norm of heads is the same for every head, so that some of them can be normed without the others.
bool same_for_heads(const Norm* norm, bool per_head, int64_t head_dim) {
  return norm == nullptr || (per_head && (norm->width == head_dim || (!norm->weight && !norm->bias)));
}

KvView kept(const KvView& kv, const HeadShare& share) {
  KvView own = kv;
  own.kv_heads = share.kv_count;
  return own;
}

}  // namespace

RankOps::RankOps(std::unique_ptr<Ops> inner, Comm& comm, RankCut cut, bool routes)
    : inner_(std::move(inner)),
      comm_(comm),
      reach_(dynamic_cast<Reach*>(inner_.get())),
      rank_(comm.rank()),
      ranks_(comm.ranks()),
      whole_(cut == RankCut::experts),
      routes_(routes) {
  for (std::vector<int64_t>& begins : begins_) begins.resize(static_cast<size_t>(ranks_) + 1);
  if (reach_ != nullptr) staged_.emplace(*reach_, comm);
}

Weight RankOps::own(const Weight& weight) const {
  if (!cut(weight)) return weight;
  Weight part = weight;
  const int64_t first = first_row(weight.rows, ranks_, rank_);
  part.rows = first_row(weight.rows, ranks_, rank_ + 1) - first;
  part.bytes = weight.bytes * part.rows / weight.rows;
  if (reach_ != nullptr) reach_->all_outputs(weight.data, weight.rows);
  if (weight.bias != nullptr && weight.experts == 0) part.bias = weight.bias + first;  // those of experts were cut
  return part;
}

Tensor RankOps::own(const Weight& weight, Tensor out) const {
  if (!cut(weight)) return out;
  const int64_t first = first_row(weight.rows, ranks_, rank_);
  return columns(out, first, first_row(weight.rows, ranks_, rank_ + 1) - first);
}

void RankOps::add_shared(Tensor tensor, int64_t parts, int64_t rows) {
  std::vector<int64_t>& begins = begins_[used_];
  for (int r = 0; r <= ranks_; ++r) begins[static_cast<size_t>(r)] = first_row(rows, ranks_, r);
  shared_[used_++] = {tensor, parts, begins};
}

void RankOps::gather_shared() {
  const std::span<const SharedColumns> all(shared_.data(), used_);
  if (used_ > 0) staged_ ? staged_->gather_columns(all) : comm_.gather_columns(all);
  used_ = 0;
}

void RankOps::gather_outputs(int64_t rows, int64_t parts, Tensor out) {
  if (is_cut(rows, ranks_)) add_shared(out, parts, rows);
  gather_shared();
}

// Whoever has a row of the table looks it up. All ranks know the ids.
void RankOps::embed(const Weight& table, const int32_t* ids, int32_t offset, float scale, bool add, Tensor out) {
  if (!cut(table)) return inner_->embed(table, ids, offset, scale, add, out);
  const Weight part = own(table);
  const int64_t first = first_row(table.rows, ranks_, rank_);
  owners_.resize(static_cast<size_t>(out.rows));
  for (int64_t r = 0; r < out.rows; ++r) {
    int64_t id = int64_t{ids[r]} + offset;
    CHECK(id >= 0, "row {} of a table of {}", id, table.rows);
    if (id >= table.rows) id = 0;
    int owner = 0;
    while (first_row(table.rows, ranks_, owner + 1) <= id) ++owner;
    owners_[static_cast<size_t>(r)] = owner;
    if (owner != rank_ || reach_ != nullptr) continue;
    const auto here = static_cast<int32_t>(id - first);
    inner_->embed(part, &here, 0, scale, add, row_of(out, r));
  }
  if (!staged_) return comm_.gather_rows(out, owners_);
  // Ids lie on the device: all are looked up, and rows of others' tokens are written over.
  inner_->embed(part, ids, static_cast<int32_t>(offset - first), scale, add, out);
  staged_->gather_rows(out, owners_);
}

void RankOps::linear(const Weight& weight, Tensor in, Tensor out) {
  if (!cut(weight)) return inner_->linear(weight, in, out);
  write_part(out, [&] { inner_->linear(own(weight), in, own(weight, out)); });
  gather_outputs(weight.rows, 1, out);
}

void RankOps::linear_glu(const Weight& gate, const Weight& up, Activation activation, Tensor in, Tensor out) {
  if (!cut(gate)) return inner_->linear_glu(gate, up, activation, in, out);
  write_part(out, [&] { inner_->linear_glu(own(gate), own(up), activation, in, own(gate, out)); });
  gather_outputs(gate.rows, 1, out);
}

void RankOps::linear_qkv(const Weight& q, const Weight& k, const Weight& v, Tensor in, Tensor q_out, Tensor k_out,
                         Tensor v_out) {
  inner_->linear_qkv(own(q), own(k), own(v), in, own(q, q_out), own(k, k_out), own(v, v_out));
  if (cut(q)) add_shared(q_out, 1, q.rows);
  if (cut(k)) add_shared(k_out, 1, k.rows);
  if (cut(v)) add_shared(v_out, 1, v.rows);
  gather_shared();
}

Weight RankOps::own_experts(const Weight& weight) const {
  Weight part = weight;
  const int64_t first = first_expert(weight.experts, ranks_, rank_);
  part.experts = static_cast<int32_t>(first_expert(weight.experts, ranks_, rank_ + 1) - first);
  part.bytes = weight.bytes * part.experts / weight.experts;
  return part;
}

// Pairs lie by expert, so a rank's lie together. Of the same places as all.
Routing RankOps::own_pairs(const Routing& routing) const {
  Routing own = routing;
  own.first += first_expert(routing.experts, ranks_, rank_);
  return own;
}

// Where each expert's pairs begin. Of rows that the host does not read it is brought here, once for every routing.
const int32_t* RankOps::first_pairs(const Routing& routing) {
  if (reach_ == nullptr) return routing.first;
  if (first_known_) return first_.data();
  first_known_ = true;
  first_.assign(static_cast<size_t>(routing.experts) + 1, 0);
  const auto bytes = static_cast<int64_t>(first_.size() * sizeof(int32_t));
  reach_->copy(reinterpret_cast<std::byte*>(first_.data()), bytes, reinterpret_cast<const std::byte*>(routing.first),
               bytes, bytes, 1);
  reach_->wait();
  return first_.data();
}

// Every pair's row, from the rank that has its expert.
void RankOps::gather_pairs(const Routing& routing, Tensor out) {
  owners_.assign(static_cast<size_t>(routing.pairs()), 0);
  const int32_t* first = routes_ ? first_pairs(routing) : nullptr;
  for (int r = 0; r < ranks_ && routes_; ++r) {
    std::fill(owners_.begin() + first[first_expert(routing.experts, ranks_, r)],
              owners_.begin() + first[first_expert(routing.experts, ranks_, r + 1)], r);
  }
  staged_ ? staged_->gather_rows(out, owners_) : comm_.gather_rows(out, owners_);
}

void RankOps::linear_experts(const Weight& weight, const Routing& routing, ExpertInput input, Tensor in, Tensor out) {
  if (whole_experts(weight)) {
    inner_->linear_experts(own_experts(weight), own_pairs(routing), input, in, out);
    return gather_pairs(routing, out);
  }
  if (!cut(weight)) return inner_->linear_experts(weight, routing, input, in, out);
  write_part(out, [&] { inner_->linear_experts(own(weight), routing, input, in, own(weight, out)); });
  gather_outputs(weight.rows, 1, out);
}

void RankOps::linear_experts_glu(const Weight& gate, const Weight& up, Activation activation, const GluLimit& limit,
                                 const Routing& routing, ExpertInput input, Tensor in, Tensor out) {
  // Only the way down reads them, on the same rank.
  if (whole_experts(gate))
    return inner_->linear_experts_glu(own_experts(gate), own_experts(up), activation, limit, own_pairs(routing), input,
                                      in, out);
  if (!cut(gate)) return inner_->linear_experts_glu(gate, up, activation, limit, routing, input, in, out);
  write_part(out, [&] {
    inner_->linear_experts_glu(own(gate), own(up), activation, limit, routing, input, in, own(gate, out));
  });
  gather_outputs(gate.rows, 1, out);
}

// Heads whole, or of every head's matrix some outputs, so heads of what it gives begin that much later.
void RankOps::linear_heads(const Weight& weight, Tensor in, Tensor out) {
  if (whole_experts(weight)) {
    const int64_t from = in.cols / weight.experts, to = out.cols / weight.experts;
    const int64_t first = first_expert(weight.experts, ranks_, rank_);
    Weight own = own_experts(weight);
    if (own.bias != nullptr) own.bias += first * weight.rows;  // heads' biases are vectors of their own, and whole
    inner_->linear_heads(own, columns(in, first * from, own.experts * from),
                         columns(out, first * to, own.experts * to));
    for (int r = 0; r <= ranks_; ++r) begins_[0][static_cast<size_t>(r)] = first_expert(weight.experts, ranks_, r) * to;
    shared_[used_++] = {out, 1, begins_[0]};
    return gather_shared();
  }
  if (!cut(weight)) return inner_->linear_heads(weight, in, out);
  const int64_t from = in.cols / weight.experts, to = out.cols / weight.experts;
  const int64_t begin = first_row(weight.rows, ranks_, rank_);
  if (weight.bias == nullptr) {
    Tensor part = out;
    part.data += begin * static_cast<int64_t>(sizeof(float));
    write_part(columns(out, 0, to), [&] { inner_->linear_heads(own(weight), in, part); });
    return gather_outputs(weight.rows, weight.experts, out);
  }
  // Biases are whole, for every head: not where those of a part would be looked for.
  Weight one = own(weight);
  one.bytes /= weight.experts;
  one.experts = 1;
  for (int64_t head = 0; head < weight.experts; ++head, one.data += weight.stride) {
    one.bias = weight.bias + head * weight.rows + begin;
    write_part(columns(out, head * to, to), [&] {
      inner_->linear_heads(one, columns(in, head * from, from), columns(out, head * to + begin, one.rows));
    });
  }
  gather_outputs(weight.rows, weight.experts, out);
}

// A view of the cache says how many heads this rank keeps, keys how many there are. They are stored before they are
// read, in every step.
int32_t& RankOps::all_kv_heads(const KvView& kv) { return all_kv_heads_[{kv.group, kv.k_offset}]; }

void RankOps::kv_store(Tensor k, Tensor v, const KvView& kv) {
  const int32_t all = all_kv_heads(kv) = static_cast<int32_t>(k.cols / kv.k_dim);
  const HeadShare own = share(all, all, rank_);
  inner_->kv_store(columns(k, int64_t{own.kv_first} * kv.k_dim, int64_t{own.kv_count} * kv.k_dim),
                   columns(v, int64_t{own.kv_first} * kv.v_dim, int64_t{own.kv_count} * kv.v_dim), kept(kv, own));
}

void RankOps::attend(const Attention& attention, Tensor q, const KvView& kv, Tensor out) {
  const int32_t all = all_kv_heads(kv);
  const HeadShare own = share(attention.heads, all, rank_);
  const int64_t from = q.cols / attention.heads, to = out.cols / attention.heads;
  if (own.count > 0) {
    Attention part = attention;
    part.heads = own.count;
    if (part.slopes != nullptr) part.slopes += own.first;
    if (part.sinks != nullptr) part.sinks += own.first;
    write_part(
        out,
        [&] {
          inner_->attend(part, columns(q, own.first * from, own.count * from), kept(kv, own),
                         columns(out, own.first * to, own.count * to));
        },
        attention.heads / all);
  }
  for (int r = 0; r < ranks_; ++r) begins_[0][static_cast<size_t>(r)] = share(attention.heads, all, r).first * to;
  begins_[0].back() = out.cols;
  shared_[used_++] = {out, 1, begins_[0]};
  gather_shared();
}

// Of its heads alone, unless a norm goes over a whole row or has a weight for each head.
void RankOps::finish_qkv(const QkvFinish& finish, int32_t heads, Tensor q, Tensor k, Tensor v, const KvView& kv) {
  const int32_t all = all_kv_heads(kv) = static_cast<int32_t>(k.cols / kv.k_dim);
  const HeadShare own = share(heads, all, rank_);
  const bool apart = same_for_heads(finish.q_norm, finish.norm_per_head, kv.k_dim) &&
                     same_for_heads(finish.k_norm, finish.norm_per_head, kv.k_dim);
  if (apart && own.count > 0) {
    return inner_->finish_qkv(
        finish, own.count, columns(q, int64_t{own.first} * kv.k_dim, int64_t{own.count} * kv.k_dim),
        columns(k, int64_t{own.kv_first} * kv.k_dim, int64_t{own.kv_count} * kv.k_dim),
        columns(v, int64_t{own.kv_first} * kv.v_dim, int64_t{own.kv_count} * kv.v_dim), kept(kv, own));
  }
  KvView whole = kv;
  whole.kv_heads = all;
  Ops::finish_qkv(finish, heads, q, k, v, whole);  // ends in kv_store of this rank's
}

}  // namespace millrace
