#include "eval/ops/sequences.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr int32_t kQueries = 1021;  // that differ: enough for one step's

std::vector<int32_t> shuffled_pages(int32_t count, uint64_t seed) {
  Chance chance(seed);
  std::vector<int32_t> pages;
  for (int32_t i = 0; i < count; ++i) pages.push_back(i);
  for (size_t i = pages.size(); i > 1; --i)
    std::swap(pages[i - 1], pages[static_cast<size_t>(chance.below(static_cast<int32_t>(i)))]);
  return pages;
}

}  // namespace

bool AttentionKind::fits(const KvForm& form) const {
  const int k_group = format(form.k).group, v_group = format(form.v).group;
  return k_dim % k_group == 0 && v_dim % v_group == 0 && (v_dim > 0 || k_group == 1);
}

KvSequences::KvSequences(Rig& rig, const AttentionKind& kind, const KvForm& form, int32_t tokens, uint64_t seed,
                         int32_t count)
    : rig_(rig), kind_(kind) {
  Chance chance(seed);
  q_ = Numbers(std::min(tokens, kQueries), int64_t{kind.heads} * kind.k_dim, chance);
  k_ = Numbers(tokens, int64_t{kind.kv_heads} * kind.k_dim, chance);
  v_ = Numbers(tokens, int64_t{kind.kv_heads} * kind.v_dim, chance);
  stride_ = (tokens + kind.page_tokens - 1) / kind.page_tokens;
  pages_ = shuffled_pages(stride_ * count, seed + 1);
  const int64_t each = int64_t{kind.kv_heads} * kind.page_tokens;
  const int64_t k = (each * kv_bytes(form.k, kind.k_dim) + 63) & ~63, v = each * kv_bytes(form.v, kind.v_dim),
                bytes = (k + v + 63) & ~63;
  std::byte* base = rig.memory(Purpose::kv, bytes * static_cast<int64_t>(pages_.size()));
  // Whoever reads what was never written shows it.
  const std::vector<std::byte> nan(static_cast<size_t>(bytes) * pages_.size(), std::byte{0xff});
  if (base != nullptr) rig.backend().copy(base, nan.data(), static_cast<int64_t>(nan.size()));
  view_ = {base, bytes, 0, k, kind.page_tokens, kind.kv_heads, kind.k_dim, kind.v_dim, form, 0};
  attention_ = {.heads = kind.heads,
                .scale = 1 / std::sqrt(static_cast<float>(kind.k_dim)),
                .value_dim = kind.value_dim,
                .window = kind.window,
                .ahead = kind.ahead,
                .grid = kind.grid,
                .softcap = kind.softcap,
                .slopes = kind.slopes ? rig.vector(chance.normals(kind.heads, 0.1f)) : nullptr,
                .sinks = kind.sinks ? rig.vector(chance.normals(kind.heads, 2)) : nullptr,
                .kept = kind.kept,
                .turn = {}};
  if (kind.kept == 0) return;
  std::vector<float> frequencies;
  for (int32_t i = 0; i < kind.k_dim / 4; ++i) frequencies.push_back(std::pow(0.1f, static_cast<float>(i) / 8));
  attention_.turn = {rig.vector(frequencies), kind.k_dim / 2, 1, kind.neighbours};
}

Numbers KvSequences::step(std::span<const StepPiece> pieces) {
  const std::vector<int32_t> rows = positions_of(pieces);
  std::vector<int32_t> queries = rows;
  for (int32_t& row : queries) row %= kQueries;
  rig_.begin(pieces, pages_, stride_);
  const Tensor q = rig_.bring(q_.picked(queries)), k = rig_.bring(k_.picked(rows)), v = rig_.bring(v_.picked(rows)),
               out = rig_.blank(q.rows, int64_t{kind_.heads} * kind_.value_width());
  rig_.ops().kv_store(k, v, view_);
  rig_.ops().attend(attention_, q, view_, out);
  return rig_.read(out);
}

void KvSequences::fill(int32_t sequence) {
  const auto tokens = static_cast<int32_t>(k_.rows);
  for (int32_t begin = 0; begin < tokens; begin += Rig::kMostRows) {
    const StepPiece piece = {sequence, begin, std::min(Rig::kMostRows, tokens - begin)};
    rig_.begin({&piece, 1}, pages_, stride_);
    const Tensor k = rig_.bring(k_.some(begin, piece.rows)), v = rig_.bring(v_.some(begin, piece.rows));
    rig_.ops().kv_store(k, v, view_);
  }
  rig_.finish();
}

}  // namespace millrace
