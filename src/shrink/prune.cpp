#include "shrink/prune.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace {
namespace {

// What column c of a matrix is worth: the mean of squares of what it reads times the squares of what it writes.
std::vector<double> column_worth(const SlotSums& sums, std::span<const float> weights) {
  const auto cols = static_cast<size_t>(sums.slot.cols);
  std::vector<double> worth(cols);
  for (size_t r = 0; r < static_cast<size_t>(sums.slot.rows); ++r) {
    for (size_t c = 0; c < cols; ++c)
      worth[c] += static_cast<double>(weights[r * cols + c]) * static_cast<double>(weights[r * cols + c]);
  }
  for (size_t c = 0; c < cols; ++c)
    worth[c] *= sums.squares[c] / static_cast<double>(std::max<int64_t>(sums.rows(), 1));
  return worth;
}

// The places of the largest, ascending; of equals the earlier.
std::vector<size_t> most_worth(const std::vector<double>& worth, size_t keep) {
  std::vector<size_t> order(worth.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return worth[a] > worth[b]; });
  order.resize(keep);
  std::sort(order.begin(), order.end());
  return order;
}

// Changes that are collected before the spec changes, because slots of the old spec say where numbers are.
struct Cut {
  std::string slot;
  std::vector<float> weight, bias;
};

std::vector<float> some_rows(std::span<const float> all, size_t cols, std::span<const size_t> rows) {
  std::vector<float> out;
  out.reserve(rows.size() * cols);
  for (size_t r : rows)
    out.insert(out.end(), all.begin() + static_cast<int64_t>(r * cols),
               all.begin() + static_cast<int64_t>((r + 1) * cols));
  return out;
}

std::vector<float> some_columns(std::span<const float> all, size_t cols, std::span<const size_t> kept) {
  std::vector<float> out;
  out.reserve(all.size() / cols * kept.size());
  for (size_t r = 0; r < all.size() / cols; ++r) {
    for (size_t c : kept) out.push_back(all[r * cols + c]);
  }
  return out;
}

Result<Cut> take_rows(const ModelSource& source, const Slot& slot, std::span<const size_t> rows) {
  Cut out = {.slot = slot.name, .weight = {}, .bias = {}};
  TRY(const std::vector<float> weight, read_matrix(source, slot, 0));
  out.weight = some_rows(weight, static_cast<size_t>(slot.cols), rows);
  TRY(const std::vector<float> bias, source.bias(slot));
  if (!bias.empty()) out.bias = some_rows(bias, 1, rows);
  return out;
}

Result<Cut> take_columns(const ModelSource& source, const Slot& slot, std::span<const size_t> columns) {
  Cut out = {.slot = slot.name, .weight = {}, .bias = {}};
  TRY(const std::vector<float> weight, read_matrix(source, slot, 0));
  out.weight = some_columns(weight, static_cast<size_t>(slot.cols), columns);
  return out;
}

Result<void> apply(ModelSource& source, ModelSpec spec, const std::vector<Cut>& changes) {
  TRY_VOID(source.reshape(std::move(spec)));
  const std::vector<Slot> all = slots(source.spec());
  for (const Cut& change : changes) {
    const Slot* slot = find_slot(all, change.slot);
    CHECK(slot != nullptr, "{}", change.slot);
    const auto bytes = std::as_bytes(std::span(change.weight));
    source.put_matrix(*slot, 0, DType::f32, {bytes.begin(), bytes.end()});
    if (!change.bias.empty()) source.put_bias(*slot, change.bias);
  }
  return {};
}

std::vector<int32_t> without(const std::vector<int32_t>& all, int32_t one) {
  std::vector<int32_t> out = all;
  std::erase(out, one);
  return out;
}

// The KL of the layers that are left without one of them, as an earlier run measured it or measured now.
Result<double> kl_without(const ModelSource& source, const std::vector<int32_t>& kept, int32_t layer, Judge& judge,
                          const StudentOptions& options, Journal* journal) {
  const std::string what = fmt::format("{} layers without layer {}", kept.size(), layer);
  if (journal != nullptr) {
    TRY(const std::optional<JournalRecord> record, journal->next(what));
    if (record && record->figures.size() == 1) return record->figures.front();
  }
  ModelSource less = source;
  TRY_VOID(less.keep_layers(without(kept, layer)));
  TRY(const Loaded student, load_student(less, options));
  TRY(const Comparison judged, judge.judge(*student.model, *student.backend, nullptr));
  if (journal != nullptr) TRY_VOID(journal->add({.what = what, .figures = {judged.kl_mean()}, .changes = {}}));
  return judged.kl_mean();
}

// Rows of a matrix that belong to these heads.
std::vector<size_t> rows_of_heads(const std::vector<size_t>& heads, size_t each) {
  std::vector<size_t> rows;
  for (size_t head : heads) {
    for (size_t i = 0; i < each; ++i) rows.push_back(head * each + i);
  }
  return rows;
}

Result<const GqaSpec*> plain_attention(const ModelSpec& spec, size_t layer) {
  const auto* gqa = std::get_if<GqaSpec>(&spec.layers[layer].mixer);
  std::string_view why;
  if (gqa == nullptr) {
    why = "it has no heads of keys and values";
  } else if (gqa->kv_from >= 0) {
    why = "it reads keys and values of another layer";
  } else if (gqa->sinks || !gqa->alibi.empty() || gqa->gated || gqa->out_norm || gqa->k_eq_v) {
    why = "its heads have numbers of their own beside keys and values";
  } else if (gqa->qk_norm && (!gqa->qk_norm_per_head || gqa->qk_norm_whole_weight)) {
    why = "norms reach over all of its heads";
  }
  if (!why.empty()) return error(Code::unsupported, "heads of layer {} cannot be removed: {}", layer, why);
  return gqa;
}

}  // namespace

Result<DropSearch> choose_layers(const ModelSource& source, int32_t remove, Judge& judge, const StudentOptions& options,
                                 const std::function<bool(const DropTrial& trial)>& tried, Journal* journal) {
  const auto count = static_cast<int32_t>(source.spec().layers.size());
  if (remove < 1 || remove >= count) {
    return error(Code::invalid, "{} of {} layers cannot be removed: at least one must go and one must stay", remove,
                 count);
  }
  DropSearch out;
  out.kept.resize(static_cast<size_t>(count));
  std::iota(out.kept.begin(), out.kept.end(), 0);
  for (int32_t round = 0; round < remove; ++round) {
    std::vector<DropTrial> trials;
    for (int32_t layer : out.kept) {
      TRY(const double kl, kl_without(source, out.kept, layer, judge, options, journal));
      trials.push_back({layer, kl});
      if (tried && !tried(trials.back())) return error(Code::cancelled, "choosing layers was stopped");
    }
    const auto least = std::min_element(trials.begin(), trials.end(),
                                        [](const DropTrial& a, const DropTrial& b) { return a.kl < b.kl; });
    out.kept = without(out.kept, least->layer);
    out.rounds.push_back(std::move(trials));
  }
  return out;
}

Result<int32_t> ffn_width(const ModelSpec& spec, double share) {
  const auto* first = std::get_if<DenseSpec>(&spec.layers.front().ffn);
  for (const LayerSpec& layer : spec.layers) {
    const auto* dense = std::get_if<DenseSpec>(&layer.ffn);
    if (dense == nullptr || dense->width != first->width || dense->inner_norm || dense->sparsity != 0)
      return error(Code::unsupported,
                   "feed-forward parts of {} cannot be narrowed: they must all be dense, of one width, "
                   "and without a norm inside",
                   spec.architecture);
  }
  const int32_t multiple = first->width % 256 == 0 ? 256 : 32;
  if (first->width % multiple != 0 || first->width <= multiple)
    return error(Code::invalid, "a feed-forward part of {} columns is too narrow to lose some", first->width);
  const auto units = std::clamp<int64_t>(std::llround(share * first->width / multiple), 1, first->width / multiple - 1);
  return static_cast<int32_t>(units * multiple);
}

Result<void> narrow_ffn(ModelSource& source, InputSums& sums, int32_t keep) {
  ModelSpec spec = source.spec();
  const std::vector<Slot> all = slots(spec);
  std::vector<Cut> changes;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto named = [&](std::string_view stem) { return fmt::format("blk.{}.{}", i, stem); };
    const SlotSums* reads = sums.find(named("ffn_down"));
    CHECK(reads != nullptr, "layer {} was watched", i);
    TRY(const std::vector<float> down, read_matrix(source, reads->slot, 0));
    const std::vector<size_t> kept = most_worth(column_worth(*reads, down), static_cast<size_t>(keep));
    for (std::string_view stem : {"ffn_gate", "ffn_up"}) {
      const Slot* slot = find_slot(all, named(stem));
      if (slot == nullptr) continue;
      TRY(Cut change, take_rows(source, *slot, kept));
      changes.push_back(std::move(change));
    }
    TRY(Cut change, take_columns(source, reads->slot, kept));
    changes.push_back(std::move(change));
    std::get<DenseSpec>(spec.layers[i].ffn).width = keep;
  }
  return apply(source, std::move(spec), changes);
}

Result<void> fewer_kv_heads(ModelSource& source, InputSums& sums, int32_t keep) {
  ModelSpec spec = source.spec();
  const std::vector<Slot> all = slots(spec);
  std::vector<Cut> changes;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    TRY(const GqaSpec* gqa, plain_attention(spec, i));
    if (keep < 1 || keep >= gqa->kv_heads)
      return error(Code::invalid, "{} key/value heads cannot stay of {}: expected 1 to {}", keep, gqa->kv_heads,
                   gqa->kv_heads - 1);
    auto named = [&](std::string_view stem) { return fmt::format("blk.{}.{}", i, stem); };
    const auto dim = static_cast<size_t>(gqa->head_dim), group = static_cast<size_t>(gqa->heads / gqa->kv_heads);
    const SlotSums* reads = sums.find(named("attn_output"));
    CHECK(reads != nullptr, "layer {} was watched", i);
    TRY(const std::vector<float> out, read_matrix(source, reads->slot, 0));
    const std::vector<double> columns = column_worth(*reads, out);
    std::vector<double> worth(static_cast<size_t>(gqa->kv_heads));
    for (size_t c = 0; c < columns.size(); ++c) worth[c / (dim * group)] += columns[c];
    const std::vector<size_t> kept = most_worth(worth, static_cast<size_t>(keep));
    const std::vector<size_t> q_rows = rows_of_heads(kept, dim * group), kv_rows = rows_of_heads(kept, dim);
    for (std::string_view stem : {"attn_q", "attn_k", "attn_v"}) {
      TRY(Cut change, take_rows(source, *find_slot(all, named(stem)), stem == "attn_q" ? q_rows : kv_rows));
      changes.push_back(std::move(change));
    }
    TRY(Cut change, take_columns(source, reads->slot, q_rows));
    changes.push_back(std::move(change));
    auto& next = std::get<GqaSpec>(spec.layers[i].mixer);
    next.heads = keep * (gqa->heads / gqa->kv_heads);
    next.kv_heads = keep;
  }
  return apply(source, std::move(spec), changes);
}

}  // namespace millrace
