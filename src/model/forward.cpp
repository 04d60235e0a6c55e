#include "model/forward.h"

#include <algorithm>
#include <array>
#include <numbers>
#include <numeric>

#include "backend/ranks/staged.h"
#include "backend/trace/trace.h"
#include "base/check.h"
#include "model/ffns/ffns.h"
#include "model/mixers/mixers.h"
#include "model/shared.h"
#include "model/streams.h"

namespace millrace {
namespace {

const Norm* present(const std::optional<NormSpec>& spec, const Norm& norm) { return spec ? &norm : nullptr; }

// The residual stream, and what the next half reads of it: a normed copy, or the stream itself.
struct Stream {
  Tensor x, copy;
  Tensor in;
};

Tensor embed_tokens(Ops& ops, const ModelSpec& spec, const ModelWeights& weights, const Step& step) {
  Tensor x = ops.scratch(step.rows, spec.width);
  if (spec.embed_width > 0) {
    const int64_t start = ops.mark();
    Tensor embedded = ops.scratch(step.rows, spec.embed_width);
    ops.embed(weights.embedding, step.tokens, 0, spec.embed_scale, false, embedded);
    ops.linear(weights.project_in, embedded, x);
    ops.restore(start);
  } else {
    ops.embed(weights.embedding, step.tokens, 0, spec.embed_scale, false, x);
  }
  if (spec.token_types > 0) ops.embed(weights.types, step.types, 0, 1, true, x);
  if (spec.positions > 0) ops.embed(weights.positions, step.positions, spec.position_offset, 1, true, x);
  if (spec.embed_norm) ops.norm(weights.embed_norm, 1, x, x);
  return x;
}

void normalise(Ops& ops, const LayerSpec& layer, const Norm* norm, Stream& stream) {
  stream.in = norm != nullptr && !layer.stream_norms ? stream.copy : stream.x;
  if (norm != nullptr) ops.norm(*norm, 1, stream.x, stream.in);
}

// Adds what a half gave and prepares what the next half reads.
void advance(Ops& ops, const LayerSpec& layer, const Norm* post, const Norm* next, Tensor y, Stream& stream) {
  if (layer.stream_norms) {
    ops.add(y, layer.residual_scale, stream.x);
    if (post != nullptr) ops.norm(*post, 1, stream.x, stream.x);
    return normalise(ops, layer, next, stream);
  }
  if (post != nullptr) ops.norm(*post, 1, y, y);
  stream.in = next != nullptr ? stream.copy : stream.x;
  if (next != nullptr) return ops.add_norm(y, layer.residual_scale, stream.x, *next, stream.copy);
  ops.add(y, layer.residual_scale, stream.x);
}

// The norm of what a layer reads first.
const Norm* entry_norm(const LayerSpec& layer, const LayerWeights& weights) {
  return is_absent(layer.mixer) ? present(layer.ffn_norm, weights.ffn_norm)
                                : present(layer.mixer_norm, weights.mixer_norm);
}

// A layer with shared attention norms the stream with what that gives; the stream itself stays.
void read_shared(Ops& ops, const LayerSpec& layer, const LayerWeights& weights, const KvView& kv, const Beside& beside,
                 Stream& stream) {
  const int64_t start = ops.mark();
  Tensor given = ops.scratch(stream.x.rows, stream.x.cols);
  run_shared(ops, *layer.shared, weights.shared, kv, stream.x, beside.embedded, given);
  ops.add(stream.x, 1, given);
  ops.norm(weights.mixer_norm, 1, given, stream.copy);
  stream.in = stream.copy;
  ops.restore(start);
}

// What the mixers of a layer give: one, or the sum of two that read the same.
void run_mixers(Ops& ops, const LayerSpec& layer, const LayerWeights& weights, const KvView& kv, Tensor in, Tensor y) {
  if (is_absent(layer.mixer)) return;
  run_mixer(ops, layer.mixer, weights.mixer, kv, in, y);
  if (!layer.beside) return;
  const int64_t start = ops.mark();
  Tensor other = ops.scratch(y.rows, y.cols);
  run_mixer(ops, *layer.beside, weights.beside, kv, in, other);
  ops.add(other, 1, y);
  ops.restore(start);
}

// Everything of a layer after its mixer gave y. `next` is the norm of the layer that follows.
void finish_layer(Ops& ops, const LayerSpec& layer, const LayerWeights& weights, const Norm* next, Tensor laurel,
                  Tensor y, Stream& stream) {
  const Norm* mixer_post = present(layer.mixer_post_norm, weights.mixer_post_norm);
  const Norm* ffn_norm = present(layer.ffn_norm, weights.ffn_norm);
  const Norm* ffn_post = present(layer.ffn_post_norm, weights.ffn_post_norm);
  auto keep = [&](float share) {
    if (share != 1) ops.finish_logits(share, 0, stream.x);
  };
  if (is_absent(layer.mixer)) {
    run_ffn(ops, layer.ffn, weights.ffn, stream.in, y);
    return advance(ops, layer, ffn_post, next, y, stream);
  }
  if (is_absent(layer.ffn)) return advance(ops, layer, mixer_post, next, y, stream);
  if (!layer.parallel) {
    keep(layer.mixer_keep);
    advance(ops, layer, mixer_post, layer.laurel > 0 ? nullptr : ffn_norm, y, stream);
    if (layer.laurel > 0) {
      ops.add(laurel, 1, stream.x);
      ops.finish_logits(1 / std::numbers::sqrt2_v<float>, 0, stream.x);
      normalise(ops, layer, ffn_norm, stream);
    }
    run_ffn(ops, layer.ffn, weights.ffn, stream.in, y);
    keep(layer.ffn_keep);
    return advance(ops, layer, ffn_post, next, y, stream);
  }
  if (!layer.shared_norm) normalise(ops, layer, ffn_norm, stream);
  Tensor z = ops.scratch(y.rows, y.cols);
  run_ffn(ops, layer.ffn, weights.ffn, stream.in, z);
  if (mixer_post != nullptr) ops.norm(*mixer_post, 1, y, y);
  ops.add(y, layer.residual_scale, stream.x);
  advance(ops, layer, ffn_post, next, z, stream);
}

// Only rows whose logits are asked for go on.
Tensor wanted_rows(Ops& ops, const Step& step, Tensor all) {
  Tensor some = ops.scratch(step.wanted, all.cols);
  ops.gather(step.wanted_rows, all, some);
  return some;
}

// Of everything a pass carries, only the rows that go on.
void keep_wanted(Ops& ops, const Step& step, const ModelSpec& spec, Stream& stream, Beside& beside, Tensor& y) {
  const bool copied = stream.in.data == stream.copy.data;
  stream.x = wanted_rows(ops, step, stream.x);
  stream.copy = copied ? wanted_rows(ops, step, stream.copy) : ops.scratch(step.wanted, spec.width);
  stream.in = copied ? stream.copy : stream.x;
  y = wanted_rows(ops, step, y);
  if (beside.laurel) beside.laurel = wanted_rows(ops, step, beside.laurel);
  if (beside.inputs) beside.inputs = wanted_rows(ops, step, beside.inputs);
  if (!beside.streams) return;
  beside.predictions = wanted_rows(ops, step, beside.predictions);
  beside.streams = ops.scratch(step.wanted, beside.streams.cols);  // written anew
}

void tap(Ops& ops, const Taps* taps, size_t layer, const Step& step, Tensor x) {
  for (size_t i = 0; taps != nullptr && i < taps->layers.size(); ++i) {
    if (static_cast<size_t>(taps->layers[i]) != layer) continue;
    const auto from = static_cast<int64_t>(i) * x.cols * static_cast<int64_t>(sizeof(float));
    std::byte* const to = taps->out.data != nullptr ? taps->out.data + from : nullptr;  // nothing under trace
    ops.gather(taps->every_row, x, {to, DType::f32, step.rows, x.cols, taps->out.stride});
  }
}

bool taps_end(const Taps* taps, size_t layers) {
  return taps != nullptr &&
         std::find(taps->layers.begin(), taps->layers.end(), static_cast<int32_t>(layers)) != taps->layers.end();
}

// From the rows that went through all layers to logits.
Tensor read_head(Ops& ops, const ModelSpec& spec, const ModelWeights& weights, Tensor rows, Tensor* hidden) {
  if (spec.final_norm) ops.norm(weights.final_norm, 1, rows, rows);
  if (hidden != nullptr) *hidden = rows;
  if (spec.embed_width > 0) {
    Tensor embedded = ops.scratch(rows.rows, spec.embed_width);
    ops.linear(weights.project_out, rows, embedded);
    rows = embedded;
  }
  Tensor logits = ops.scratch(rows.rows, spec.vocab);
  ops.linear(weights.head, rows, logits);
  if (spec.logit_scale != 1 || spec.logit_softcap > 0) ops.finish_logits(spec.logit_scale, spec.logit_softcap, logits);
  return logits;
}

// What ranks [first, end) give, each to all. Under trace nothing moves.
void pass_rows(Ops& ops, const Stage& stage, int first, int end, Tensor x) {
  if (dynamic_cast<const TraceOps*>(&ops) != nullptr) return;
  auto* const reach = dynamic_cast<Reach*>(&ops);
  for (int rank = first; rank < end; ++rank) {
    if (reach != nullptr)
      StagedMoves(*reach, *stage.comm).give_rows(x, rank);
    else
      stage.comm->give_rows(x, rank);
  }
}

// The wanted rows after the last layer; none if none is wanted. On a rank that has whole layers and not the last: rows
// that are not read.
Tensor run_layers(Ops& ops, const Model& model, std::span<const KvView> kv, const Step& step,
                  const Taps* taps = nullptr) {
  const ModelSpec& spec = model.spec();
  const ModelWeights& weights = model.weights();
  const bool ends_tapped = taps_end(taps, spec.layers.size());
  ops.begin(step);
  const Stage* stage = model.stage() ? &*model.stage() : nullptr;
  const size_t begin = stage != nullptr ? static_cast<size_t>(stage->begin) : 0;
  const size_t end = stage != nullptr ? static_cast<size_t>(stage->end) : spec.layers.size();
  const bool enters = stage == nullptr || stage->first();
  Stream stream = {.x = enters ? embed_tokens(ops, spec, weights, step) : ops.scratch(step.rows, spec.width),
                   .copy = ops.scratch(step.rows, spec.width),
                   .in = {}};
  if (stage != nullptr) pass_rows(ops, *stage, 0, stage->comm->rank(), stream.x);
  Beside beside = begin_beside(ops, spec, weights, step, stream.x);
  bool normed = false;  // the next layer's norm went with what came before it
  for (size_t i = begin; i < end; ++i) {
    const LayerSpec& layer = spec.layers[i];
    const LayerWeights& own = weights.layers[i];
    const bool last = i + 1 == spec.layers.size();
    const bool wanted_only = last && !ends_tapped;  // from here on only wanted rows
    const int64_t start = ops.mark();
    tap(ops, taps, i, step, stream.x);
    if (spec.streams) predict_streams(ops, spec, own.streams, beside, stream.x);
    if (layer.shared) {
      read_shared(ops, layer, own, kv[i], beside, stream);
    } else if (!normed) {
      normalise(ops, layer, entry_norm(layer, own), stream);
    }
    if (layer.laurel > 0) run_laurel(ops, own.laurel, layer.laurel, stream.in, beside);
    Tensor y = ops.scratch(step.rows, spec.width);
    run_mixers(ops, layer, own, kv[i], stream.in, y);
    if (wanted_only && step.wanted == 0) return {};
    if (wanted_only && step.wanted < step.rows) keep_wanted(ops, step, spec, stream, beside, y);
    normed = i + 1 < end && !spec.layer_input && !spec.streams && !layer.scaled && !spec.layers[i + 1].shared;
    const Norm* next = normed ? entry_norm(spec.layers[i + 1], weights.layers[i + 1]) : nullptr;
    finish_layer(ops, layer, own, next, beside.laurel, y, stream);
    finish_beside(ops, spec, layer, own, static_cast<int64_t>(i), beside, stream.x);
    if (!wanted_only) ops.restore(start);
  }
  if (stage != nullptr && !stage->last()) {
    pass_rows(ops, *stage, stage->comm->rank(), stage->comm->ranks() - 1, stream.x);
    return step.wanted > 0 ? stream.x : Tensor();
  }
  if (ends_tapped) {
    tap(ops, taps, spec.layers.size(), step, stream.x);
    if (step.wanted == 0) return {};
    if (step.wanted < step.rows) stream.x = wanted_rows(ops, step, stream.x);
  }
  if (spec.streams) join_streams(ops, spec, weights, beside, stream.x);
  return stream.x;
}

}  // namespace

Tensor forward(Ops& ops, const Model& model, std::span<const KvView> kv, const Step& step, Tensor* hidden,
               const Taps* taps) {
  CHECK(model.spec().head, "an encoder has no logits");
  const Tensor rows = run_layers(ops, model, kv, step, taps);
  if (!rows) return rows;
  if (!model.stage()) return read_head(ops, model.spec(), model.weights(), rows, hidden);
  const Stage& stage = *model.stage();
  CHECK(hidden == nullptr && (taps == nullptr || taps->layers.empty()),
        "ranks that have whole layers show nothing of them");
  const Tensor logits = stage.last() ? read_head(ops, model.spec(), model.weights(), rows, nullptr)
                                     : ops.scratch(step.wanted, model.spec().vocab);
  pass_rows(ops, stage, stage.comm->ranks() - 1, stage.comm->ranks(), logits);
  return logits;
}

int32_t encoded_width(const ModelSpec& spec) {
  return spec.pool && !spec.pool->projections.empty() ? spec.pool->projections.back().outputs : spec.width;
}

Tensor encode(Ops& ops, const Model& model, std::span<const KvView> kv, const Step& step, Pooling pooling) {
  const ModelSpec& spec = model.spec();
  Tensor rows = run_layers(ops, model, kv, step);
  if (spec.final_norm) ops.norm(model.weights().final_norm, 1, rows, rows);
  if (pooling != Pooling::first && pooling != Pooling::last) {
    const Tensor one = ops.scratch(step.sequences, spec.width);
    ops.pool(pooling, step, rows, one);
    rows = one;
  }
  for (size_t i = 0; spec.pool && i < spec.pool->projections.size(); ++i) {
    const ProjectionSpec& each = spec.pool->projections[i];
    const ProjectionWeights& weights = model.weights().pool[i];
    const Tensor out = ops.scratch(rows.rows, each.outputs);
    ops.linear(weights.matrix, rows, out);
    if (each.activation) ops.activate(*each.activation, out, out);
    if (each.tanh) ops.finish_logits(1, 1, out);
    if (each.norm) ops.norm(weights.norm, 1, out, out);
    rows = out;
  }
  return rows;
}

std::vector<KvShape> kv_shapes(const ModelSpec& spec, const KvForm& form) {
  std::vector<KvShape> shapes;
  for (const LayerSpec& layer : spec.layers) shapes.push_back(kv_shape(layer, form));
  return shapes;
}

std::vector<KvView> kv_views(const ModelSpec& spec, const Store& store, int first) {
  std::vector<KvView> views;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const int32_t from = kv_source(spec.layers[i].mixer);
    views.push_back(store.view(first + (from >= 0 ? from : static_cast<int>(i))));
  }
  return views;
}

std::vector<KvView> kv_outlines(const ModelSpec& spec, const KvForm& form) {
  std::vector<KvView> views;
  for (const KvShape& shape : kv_shapes(spec, form)) {
    KvView view = {
        .page_tokens = 16, .kv_heads = shape.kv_heads, .k_dim = shape.k_dim, .v_dim = shape.v_dim, .form = shape.form};
    view.state.numbers = {shape.state.convolution, shape.state.scan};
    views.push_back(view);
  }
  return views;
}

namespace {

// Steps of one shape, for a trace that counts what they need: positions, pages and values do not matter to it.
class TracedSteps {
 public:
  TracedSteps(const ModelSpec& spec, int32_t rows, int32_t sequences) {
    kv_ = kv_outlines(spec, DType::f32);
    positions_.resize(static_cast<size_t>(rows));
    std::iota(positions_.begin(), positions_.end(), 0);
    zeros_.resize(positions_.size());
    ones_.assign(positions_.size(), 1);
    first_row_.assign(static_cast<size_t>(sequences) + 1, rows);
    first_row_[0] = 0;
    step_ = {.rows = rows,
             .sequences = sequences,
             .tokens = zeros_.data(),
             .positions = zeros_.data(),
             .visible = ones_.data(),
             .types = zeros_.data(),
             .sequence = zeros_.data(),
             .first_row = first_row_.data(),
             .wanted_rows = positions_.data(),
             .groups = groups_};
  }
  std::span<const KvView> kv() const { return kv_; }
  const int32_t* every_row() const { return positions_.data(); }
  const Step& step(int32_t wanted) {
    step_.wanted = wanted;
    return step_;
  }

 private:
  std::vector<KvView> kv_;
  std::vector<int32_t> positions_, zeros_, ones_, first_row_;
  std::array<PageTables, 1> groups_ = {};
  Step step_;
};

}  // namespace

int64_t workspace_bytes(const Model& model, int32_t max_rows, int32_t max_wanted,
                        std::span<const int32_t> tapped_layers) {
  CHECK(max_rows > 0 && max_wanted >= 0, "a workspace for {} rows of which {} are wanted", max_rows, max_wanted);
  TracedSteps steps(model.spec(), max_rows, 1);
  const auto tapped = static_cast<int64_t>(tapped_layers.size()) * model.spec().width;
  const Taps taps = {.layers = {tapped_layers.begin(), tapped_layers.end()},
                     .every_row = steps.every_row(),
                     .out = {nullptr, DType::f32, max_rows, tapped, tapped * static_cast<int64_t>(sizeof(float))}};
  TraceOps ops;
  // The most rows wanted is not always the most room: rows that are not wanted are copied together first.
  for (int32_t wanted : {std::min(max_wanted, max_rows), std::min(max_wanted, max_rows - 1)})
    forward(ops, model, steps.kv(), steps.step(wanted), nullptr, tapped > 0 ? &taps : nullptr);
  return ops.workspace_bytes();
}

int64_t encode_workspace_bytes(const Model& model, int32_t max_rows, int32_t max_sequences, Pooling pooling) {
  CHECK(max_rows > 0 && max_sequences > 0, "a workspace for {} rows of {} texts", max_rows, max_sequences);
  TracedSteps steps(model.spec(), max_rows, std::min(max_sequences, max_rows));
  TraceOps ops;
  const bool one = pooling == Pooling::first || pooling == Pooling::last;
  const int32_t most = one ? std::min(max_sequences, max_rows) : max_rows;
  const int32_t fewer = one ? std::clamp(max_sequences, 1, std::max(1, max_rows - 1)) : max_rows;  // as above
  for (int32_t wanted : {most, fewer}) encode(ops, model, steps.kv(), steps.step(wanted), pooling);
  return ops.workspace_bytes();
}

}  // namespace millrace
