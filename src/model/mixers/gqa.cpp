// Attention over keys and values of heads: every query head, or several together, has a key/value head.
#include <algorithm>
#include <cmath>
#include <functional>

#include "model/ffns/ffns.h"
#include "model/gguf_keys.h"
#include "model/limits.h"
#include "model/mixers/mixers.h"

namespace millrace {
namespace {

// How far back a row reads: a window, or a step of the grid. 0: to the first position.
int32_t kept_window(const GqaSpec& gqa) {
  if (!gqa.causal) return 0;  // what lies behind is read again by the next pass
  if (gqa.window == 0 || gqa.grid == 0) return std::max(gqa.window, gqa.grid);
  return std::min(gqa.window, gqa.grid);
}

}  // namespace

void visit(SlotWalk& walk, const GqaSpec& gqa, GqaWeights& weights) {
  const int64_t width = walk.spec().width;
  const int64_t q = int64_t{gqa.heads} * gqa.head_dim, kv = int64_t{gqa.kv_heads} * gqa.head_dim;
  const SlotWalk::Traits inner = {.bias = gqa.qkv_bias};
  walk.matrix("attn_q", q, width, weights.q, {.bias = inner.bias, .heads = gqa.heads});
  if (gqa.gated) walk.matrix("attn_gate", q, width, weights.gate, {});
  if (gqa.kv_from < 0) {
    walk.matrix("attn_k", kv, width, weights.k, {.bias = inner.bias, .heads = gqa.kv_heads});
    if (!gqa.k_eq_v) walk.matrix("attn_v", kv, width, weights.v, inner);
  }
  const bool shared = gqa.qk_norm_per_head && !gqa.qk_norm_whole_weight;  // one weight for all heads
  walk.norm("attn_q_norm", shared ? gqa.head_dim : q, gqa.qk_norm, weights.q_norm,
            gqa.qk_norm_whole_weight ? gqa.heads : 0);
  if (gqa.kv_from < 0) {
    walk.norm("attn_k_norm", shared ? gqa.head_dim : kv, gqa.qk_norm, weights.k_norm,
              gqa.qk_norm_whole_weight ? gqa.kv_heads : 0);
  }
  if (gqa.kv_from < 0) walk.norm("attn_v_norm", gqa.head_dim, gqa.v_norm, weights.v_norm);
  walk.norm("attn_sub_norm", q, gqa.out_norm, weights.out_norm);
  if (gqa.sinks) walk.vector("attn_sinks", gqa.heads, weights.sinks);
  walk.matrix("attn_output", width, q, weights.out, {.bias = gqa.out_bias});
}

namespace {

// A layer whose keys and values another reads must have some, of the same shape, and keep them as long.
Result<void> check_source(const ModelSpec& spec, const GqaSpec& gqa, int32_t layer) {
  if (gqa.kv_from < 0) return {};
  if (gqa.kv_from >= layer)
    return error(Code::invalid, "reads keys of layer {}, which does not come before it", gqa.kv_from);
  const auto* from = std::get_if<GqaSpec>(&spec.layers[static_cast<size_t>(gqa.kv_from)].mixer);
  if (from == nullptr || from->kv_from >= 0)
    return error(Code::invalid, "reads keys of layer {}, which has none of its own", gqa.kv_from);
  if (from->kv_heads != gqa.kv_heads || from->head_dim != gqa.head_dim) {
    return error(Code::invalid, "reads {} heads of {} numbers from layer {}, which has {} of {}", gqa.kv_heads,
                 gqa.head_dim, gqa.kv_from, from->kv_heads, from->head_dim);
  }
  if (kept_window(*from) != kept_window(gqa) && kept_window(*from) != 0) {
    return error(Code::invalid, "reads the last {} positions (0: all) of layer {}, which keeps {}", kept_window(gqa),
                 gqa.kv_from, kept_window(*from));
  }
  return {};
}

}  // namespace

Result<void> check(const ModelSpec& spec, const GqaSpec& gqa, int32_t layer) {
  TRY_VOID(in_range("the number of attention heads", gqa.heads, kMaxWidth));
  TRY_VOID(in_range("the number of key/value heads", gqa.kv_heads, kMaxWidth));
  TRY_VOID(in_range("the head dimension", gqa.head_dim, kMaxWidth));
  TRY_VOID(in_range("heads * head dimension", int64_t{gqa.heads} * gqa.head_dim, kMaxWidth));
  if (gqa.heads % gqa.kv_heads != 0) {
    return error(Code::invalid, "{} attention heads cannot share {} key/value heads: expected a divisor", gqa.heads,
                 gqa.kv_heads);
  }
  if (gqa.grid < 0) return error(Code::invalid, "attention by chunks of {}: expected 0 (none) or more", gqa.grid);
  if (gqa.q_scale.every < 0 || gqa.q_scale.offset < 0 || !std::isfinite(gqa.q_scale.factor)) {
    return error(Code::invalid, "queries scaled by {} every {} positions", gqa.q_scale.factor, gqa.q_scale.every);
  }
  if (gqa.ahead < 0 || (gqa.ahead > 0 && gqa.causal))
    return error(Code::invalid, "attention sees {} positions ahead", gqa.ahead);
  if (gqa.window < 0) return error(Code::invalid, "the attention window is {}: expected 0 (none) or more", gqa.window);
  if (gqa.kept < 0 || (gqa.kept > 0 && (gqa.window == 0 || gqa.grid > 0 || !gqa.causal)))
    return error(Code::invalid, "the first {} positions stay beside a window of {}", gqa.kept, gqa.window);
  if (gqa.v_norm && (gqa.clip > 0 || gqa.v_norm->weight || gqa.v_norm->bias))
    return error(Code::unsupported, "a norm of values with weights, or after they were clipped, is not built");
  if (gqa.k_eq_v && (gqa.clip > 0 || gqa.qkv_bias))
    return error(Code::unsupported, "values that are keys, with biases or clipped, are not built");
  if (!std::isfinite(gqa.scale) || gqa.scale == 0) return error(Code::invalid, "the attention scale is {}", gqa.scale);
  if (!std::isfinite(gqa.out_scale)) return error(Code::invalid, "a result times {}", gqa.out_scale);
  if (!(gqa.softcap >= 0)) return error(Code::invalid, "the attention softcap is {}", gqa.softcap);
  if (!gqa.alibi.empty() && gqa.alibi.size() != static_cast<size_t>(gqa.heads)) {
    return error(Code::invalid, "{} ALiBi slopes for {} heads", gqa.alibi.size(), gqa.heads);
  }
  if (gqa.rope >= static_cast<int32_t>(spec.ropes.size())) {
    return error(Code::invalid, "rotary set {} of {}", gqa.rope, spec.ropes.size());
  }
  if (gqa.rope >= 0 && spec.ropes[static_cast<size_t>(gqa.rope)].dims > gqa.head_dim) {
    return error(Code::invalid, "rotary embedding turns {} dimensions of heads that have {}",
                 spec.ropes[static_cast<size_t>(gqa.rope)].dims, gqa.head_dim);
  }
  TRY_VOID(check_source(spec, gqa, layer));
  TRY_VOID(check_norm(gqa.v_norm));
  TRY_VOID(check_norm(gqa.qk_norm));
  return check_norm(gqa.out_norm);
}

Result<void> check_runnable(const ModelSpec&, const GqaSpec& gqa) {
  // What every backend's attention has room for.
  constexpr int32_t kMostHeadDim = 512, kMostGroup = 128;
  if (gqa.head_dim <= kMostHeadDim && gqa.heads / gqa.kv_heads <= kMostGroup) return {};
  return error(Code::unsupported,
               "heads of {} numbers, {} of them for each key/value head: heads of at most {} and groups of at most {} "
               "can be run",
               gqa.head_dim, gqa.heads / gqa.kv_heads, kMostHeadDim, kMostGroup);
}

void run(Ops& ops, const GqaSpec& spec, const GqaWeights& weights, const KvView& kv, Tensor in, Tensor out) {
  const int64_t start = ops.mark();
  const int64_t width = int64_t{spec.heads} * spec.head_dim, kv_width = int64_t{spec.kv_heads} * spec.head_dim;
  Tensor q = ops.scratch(in.rows, width);
  if (spec.kv_from < 0) {
    Tensor k = ops.scratch(in.rows, kv_width), v = ops.scratch(in.rows, kv_width);
    // Values that are keys are computed a second time: they part ways before the next op.
    ops.linear_qkv(weights.q, weights.k, spec.k_eq_v ? weights.k : weights.v, in, q, k, v);
    if (spec.v_norm) ops.norm(weights.v_norm, spec.kv_heads, v, v);
    const QkvFinish finish = {.q_norm = spec.qk_norm ? &weights.q_norm : nullptr,
                              .k_norm = spec.qk_norm ? &weights.k_norm : nullptr,
                              .norm_per_head = spec.qk_norm_per_head,
                              .rope = weights.rope,
                              .norm_after_rope = spec.qk_norm_after_rope,
                              .clip = spec.clip,
                              .q_scale = spec.q_scale};
    ops.finish_qkv(finish, spec.heads, q, k, v, kv);
  } else {
    const int32_t parts = spec.qk_norm_per_head ? spec.heads : 1;
    ops.linear(weights.q, in, q);
    if (spec.clip > 0) ops.clamp(spec.clip, q);
    if (spec.qk_norm && !spec.qk_norm_after_rope) ops.norm(weights.q_norm, parts, q, q);
    if (weights.rope.dims > 0) ops.rope(weights.rope, spec.heads, q);
    if (spec.qk_norm && spec.qk_norm_after_rope) ops.norm(weights.q_norm, parts, q, q);
    if (spec.q_scale.every > 0) ops.scale_by_position(spec.q_scale, q);
  }
  Tensor mixed = ops.scratch(in.rows, width);
  const Attention attention = {.heads = spec.heads,
                               .scale = spec.scale,
                               .window = spec.window,
                               .ahead = spec.ahead,
                               .grid = spec.grid,
                               .softcap = spec.softcap,
                               .slopes = weights.slopes,
                               .sinks = weights.sinks,
                               .kept = spec.kept,
                               .turn = weights.rope};
  ops.attend(attention, q, kv, mixed);
  if (spec.out_norm) ops.norm(weights.out_norm, 1, mixed, mixed);
  if (spec.gated) {
    ops.linear(weights.gate, in, q);  // queries are done with
    ops.glu(Activation::sigmoid, q, mixed, mixed);
  }
  ops.linear(weights.out, mixed, out);
  if (spec.out_scale != 1) ops.finish_logits(spec.out_scale, 0, out);
  ops.restore(start);
}

KvShape kv_shape(const GqaSpec& gqa, const KvForm& form) {
  if (gqa.kv_from >= 0) return {.form = form};
  return {.kv_heads = gqa.kv_heads,
          .k_dim = gqa.head_dim,
          .v_dim = gqa.head_dim,
          .form = form,
          .window = kept_window(gqa),
          .kept = gqa.kept};
}

Result<void> upload_constants(Backend& backend, const GqaSpec& gqa, std::span<const Rope> ropes, GqaWeights& weights) {
  if (gqa.rope >= 0) weights.rope = ropes[static_cast<size_t>(gqa.rope)];
  if (gqa.alibi.empty()) return {};
  TRY(weights.slopes, backend.upload_vector(gqa.alibi));
  return {};
}

TakenRows taken_rows(const GqaSpec& gqa, Take take) {
  const int64_t dim = gqa.head_dim, q = gqa.heads * dim, kv = gqa.kv_heads * dim;
  const int64_t shared = gqa.heads / gqa.kv_heads * dim, group = shared + 2 * dim;
  const bool by_head = take == Take::head_q || take == Take::head_gate;
  TakenRows taken = {.stored = by_head ? 2 * q : q + 2 * kv};
  auto add = [&](int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) taken.rows.push_back(first + i);
  };
  if (take == Take::q) add(0, q);
  if (take == Take::k) add(q, kv);
  if (take == Take::v) add(q + kv, kv);
  for (int64_t head = 0; by_head && head < gqa.heads; ++head)
    add(head * 2 * dim + (take == Take::head_gate ? dim : 0), dim);
  for (int64_t g = 0; g < gqa.kv_heads; ++g) {
    if (take == Take::grouped_q) add(g * group, shared);
    if (take == Take::grouped_k) add(g * group + shared, dim);
    if (take == Take::grouped_v) add(g * group + shared + dim, dim);
  }
  return taken;
}

namespace {

// Layers that read keys of earlier ones: Gemma's files say how many of the last do, others which layer each reads.
void put_shared(GgufKeys& keys, const ModelSpec& model) {
  std::vector<int32_t> from;
  for (const LayerSpec& layer : model.layers) from.push_back(kv_source(layer.mixer));
  const auto shared = std::count_if(from.begin(), from.end(), [](int32_t layer) { return layer >= 0; });
  const bool gemma4 = keys.architecture() == "gemma4", counted = gemma4 || keys.architecture() == "gemma3n";
  if (gemma4 || (counted && shared > 0)) keys.put("attention.shared_kv_layers", shared);
  if (!counted && shared > 0) keys.put_counts("attention.kv_from", from);
}

// Heads that differ by layer: those that see everything have the plain keys, those with a window keys of their own.
// Qwen's files say otherwise which layers attend, and have one number for these.
void put_heads(GgufKeys& keys, const ModelSpec& model, const GqaSpec& first) {
  GqaSpec full = first, local = first;
  std::vector<int32_t> kv_heads;
  for (const LayerSpec& layer : model.layers) {
    const auto* gqa = std::get_if<GqaSpec>(&layer.mixer);
    if (gqa == nullptr) {
      if (!keys.architecture().starts_with("qwen3")) kv_heads.push_back(0);
      continue;
    }
    kv_heads.push_back(gqa->kv_heads);
    (gqa->window > 0 ? local : full) = *gqa;
  }
  const bool differ = std::adjacent_find(kv_heads.begin(), kv_heads.end(), std::not_equal_to<>()) != kv_heads.end();
  if (differ) {
    keys.put_counts("attention.head_count_kv", kv_heads);
  } else {
    keys.put("attention.head_count_kv", first.kv_heads);
  }
  const bool two = keys.architecture() == "gemma4";
  keys.put("attention.key_length", two ? full.head_dim : first.head_dim);
  keys.put("attention.value_length", two ? full.head_dim : first.head_dim);
  if (two) {
    keys.put("attention.key_length_swa", local.head_dim);
    keys.put("attention.value_length_swa", local.head_dim);
  }
  put_shared(keys, model);
}

}  // namespace

void put_keys(GgufKeys& keys, const ModelSpec& model, const LayerSpec& layer, const GqaSpec& gqa) {
  const std::string_view arch = keys.architecture();
  keys.put("attention.head_count", gqa.heads);
  put_heads(keys, model, gqa);
  if (gqa.clip > 0) keys.put_number("attention.clamp_kqv", gqa.clip);
  if (gqa.grid > 0) keys.put("attention.chunk_size", gqa.grid);
  for (const LayerSpec& each : model.layers) {
    const auto* other = std::get_if<GqaSpec>(&each.mixer);
    if (other == nullptr || other->q_scale.every == 0) continue;
    keys.put_number("attention.temperature_scale", other->q_scale.factor);
    keys.put("attention.temperature_length", other->q_scale.every);
    break;
  }
  if (arch == "granite" || arch == "granitehybrid") {
    keys.put_number("logit_scale", 1 / model.logit_scale);
    keys.put_number("residual_scale", layer.residual_scale);
    keys.put_number("embedding_scale", model.embed_scale);
    keys.put_number("attention.scale", gqa.scale);
  }
  if (arch == "gemma2" || gqa.softcap > 0) keys.put_number("attn_logit_softcapping", gqa.softcap);
  if (arch == "gemma2" || arch == "gemma3") {
    const double usual =
        gemma_attention_scalar(static_cast<int64_t>(model.layers.size()), model.width, gqa.heads, gqa.head_dim);
    if (std::abs(gqa.scale * std::sqrt(usual) - 1) > 1e-6) keys.put_number("attention.scale", gqa.scale);
  }
}

std::string_view unsayable(const GqaSpec& gqa, std::string_view gguf) {
  if (gguf == "falcon" && !gqa.alibi.empty()) return "ALiBi";
  const double usual = 1 / std::sqrt(static_cast<double>(gqa.head_dim));
  if (gguf == "gpt2" && std::abs(gqa.scale / usual - 1) > 1e-6) return "a scale of scores of its own";
  return {};
}

void settle_biases(GqaSpec& gqa, const Checkpoint& checkpoint, int32_t layer) {
  gqa.out_bias = checkpoint.find(fmt::format("blk.{}.attn_output.bias", layer)) != nullptr;
}

Result<void> shard(GqaSpec& gqa, int32_t ranks) {
  TRY_VOID(check_divides("attention heads", gqa.heads, ranks));
  if (gqa.kv_heads % ranks != 0 && ranks % gqa.kv_heads != 0) {
    return error(Code::invalid, "{} key/value heads go neither whole nor shared over {} devices", gqa.kv_heads, ranks);
  }
  gqa.heads /= ranks;
  gqa.kv_heads = std::max(1, gqa.kv_heads / ranks);  // fewer than devices: each keeps a copy of one
  if (!gqa.alibi.empty()) gqa.alibi.resize(static_cast<size_t>(gqa.heads));
  return {};
}

Result<void> forget(GqaSpec& gqa, const KvKeep& keep) {
  if (!gqa.causal) return error(Code::unsupported, "sees tokens after its own, so that nothing can be left behind");
  if (gqa.window > 0) return error(Code::unsupported, "has a window of {} positions of its own", gqa.window);
  if (gqa.grid > 0) return error(Code::unsupported, "forgets every {} positions by itself", gqa.grid);
  if (gqa.q_scale.every > 0) return error(Code::unsupported, "has queries that grow with their position");
  if (gqa.rope >= 0 && gqa.qk_norm && gqa.qk_norm_after_rope)
    return error(Code::unsupported, "norms its queries after turning them, so that they cannot be turned back");
  gqa.window = keep.window;
  gqa.kept = keep.sinks;
  return {};
}

}  // namespace millrace
