#include <array>

#include "backend/trace/trace.h"
#include "model/ffns/ffns.h"
#include "model/heads/head.h"
#include "model/mixers/mixers.h"

namespace millrace {
namespace {

// x += ffn(norm(x))
void add_ffn(Ops& ops, const Head& head, Tensor x) {
  const int64_t start = ops.mark();
  Tensor in = ops.scratch(x.rows, x.cols), y = ops.scratch(x.rows, x.cols);
  ops.norm(head.weights().ffn_norm, 1, x, in);
  run(ops, head.spec().ffn, head.weights().ffn, in, y);
  ops.add(y, 1, x);
  ops.restore(start);
}

// [norm(embedding of the row's token), norm(feature)]
Tensor join(Ops& ops, const Head& head, const Step& step, Tensor feature) {
  const HeadWeights& weights = head.weights();
  const int64_t width = head.spec().width;
  Tensor both = ops.scratch(step.rows, 2 * width), token = ops.scratch(step.rows, width);
  ops.embed(weights.embedding, step.tokens, 0, head.target().spec().embed_scale, false, token);
  ops.norm(weights.token_norm, 1, token, columns(both, 0, width));
  ops.norm(weights.feature_norm, 1, feature, columns(both, width, width));
  return both;
}

// The stream of the entries after the head's layer. What was given is not changed.
Tensor run_eagle(Ops& ops, const Head& head, const GqaSpec& attention, const KvView& kv, const Step& step,
                 Tensor feature, bool fresh) {
  const HeadWeights& weights = head.weights();
  const int64_t width = head.spec().width;
  Tensor x = ops.scratch(step.rows, width);
  const int64_t start = ops.mark();
  if (fresh) {
    Tensor fused = ops.scratch(step.rows, width);
    ops.linear(weights.fuse, feature, fused);
    feature = fused;
  }
  Tensor both = join(ops, head, step, feature);
  run(ops, attention, weights.attention, kv, both, x);
  ops.add(head.spec().normed_residual ? columns(both, width, width) : feature, 1, x);
  add_ffn(ops, head, x);
  ops.restore(start);
  return x;
}

Tensor run_mtp(Ops& ops, const Head& head, const GqaSpec& attention, const KvView& kv, const Step& step,
               Tensor feature) {
  const HeadWeights& weights = head.weights();
  Tensor x = ops.scratch(step.rows, head.spec().width);
  const int64_t start = ops.mark();
  ops.linear(weights.fuse, join(ops, head, step, feature), x);
  Tensor in = ops.scratch(step.rows, x.cols), y = ops.scratch(step.rows, x.cols);
  ops.norm(weights.mixer_norm, 1, x, in);
  run(ops, attention, weights.attention, kv, in, y);
  ops.add(y, 1, x);
  add_ffn(ops, head, x);
  ops.restore(start);
  return x;
}

}  // namespace

HeadOutput run_head(Ops& ops, const Head& head, const KvView& kv, const Step& step, Tensor feature, bool fresh,
                    int32_t grid) {
  const HeadSpec& spec = head.spec();
  GqaSpec attention = spec.attention;
  attention.grid = grid;
  ops.begin(step);
  Tensor x = spec.kind == HeadSpec::Kind::eagle3 ? run_eagle(ops, head, attention, kv, step, feature, fresh)
                                                 : run_mtp(ops, head, attention, kv, step, feature);
  if (step.wanted == 0) return {};
  Tensor next = ops.scratch(step.wanted, spec.width), normed = ops.scratch(step.wanted, spec.width);
  ops.gather(step.wanted_rows, x, next);
  ops.norm(head.weights().final_norm, 1, next, normed);
  Tensor logits = ops.scratch(step.wanted, spec.vocab);
  ops.linear(head.weights().out, normed, logits);
  return {logits, next};
}

Tensor run_medusa(Ops& ops, const Head& head, int ahead, const Step& step, Tensor stream) {
  const HeadWeights::Guess& guess = head.weights().guesses[static_cast<size_t>(ahead)];
  ops.begin(step);
  Tensor h = ops.scratch(stream.rows, stream.cols), change = ops.scratch(stream.rows, stream.cols);
  ops.norm(head.target().weights().final_norm, 1, stream, h);
  ops.linear(guess.change, h, change);
  ops.activate(Activation::silu, change, change);
  ops.add(change, 1, h);
  Tensor logits = ops.scratch(stream.rows, head.spec().vocab);
  ops.linear(guess.out, h, logits);
  return logits;
}

int64_t head_workspace(const Head& head, int32_t max_rows, int32_t max_wanted) {
  const HeadSpec& spec = head.spec();
  std::vector<int32_t> ones(static_cast<size_t>(max_rows), 1), zeros(static_cast<size_t>(max_rows));
  const std::array<int32_t, 2> first_row = {0, max_rows};
  const std::array<PageTables, 1> groups = {};
  const Step step = {.rows = max_rows,
                     .sequences = 1,
                     .wanted = max_wanted,
                     .tokens = zeros.data(),
                     .positions = zeros.data(),
                     .visible = ones.data(),
                     .sequence = zeros.data(),
                     .first_row = first_row.data(),
                     .wanted_rows = zeros.data(),
                     .groups = groups};
  const KvView kv = {.page_tokens = 16,
                     .kv_heads = spec.attention.kv_heads,
                     .k_dim = spec.attention.head_dim,
                     .v_dim = spec.attention.head_dim,
                     .form = DType::f32};
  TraceOps ops;
  std::byte nowhere[64];
  auto input = [&](int64_t cols) {
    return Tensor{nowhere, DType::f32, max_rows, cols, cols * static_cast<int64_t>(sizeof(float))};
  };
  if (spec.kind == HeadSpec::Kind::medusa) {
    run_medusa(ops, head, 0, step, input(spec.width));
  } else {
    run_head(ops, head, kv, step, input(spec.feature()), true);
    run_head(ops, head, kv, step, input(spec.width), false);
  }
  return ops.workspace_bytes();
}

}  // namespace millrace
