// Mamba, both generations: a short convolution over what enters, a scan whose steps the token decides, a gate.
#include <algorithm>
#include <cmath>
#include <limits>

#include "model/limits.h"
#include "model/mixers/mixers.h"

namespace millrace {
namespace {

bool is_first_kind(const SsmSpec& ssm) { return ssm.rank > 0; }

// Columns that the convolution takes in: x alone, or x, B and C.
int64_t convolved(const SsmSpec& ssm) {
  return is_first_kind(ssm) ? ssm.inner : ssm.inner + 2 * int64_t{ssm.groups} * ssm.state;
}

int64_t in_rows(const SsmSpec& ssm) {
  return is_first_kind(ssm) ? 2 * int64_t{ssm.inner} : ssm.inner + convolved(ssm) + ssm.heads;
}

Convolution convolution(const SsmSpec& ssm, const SsmWeights& weights) {
  return {.taps = ssm.conv, .weight = weights.conv.weight, .bias = weights.conv.bias, .silu = true};
}

// Every channel has steps of its own, out of a product of low rank.
void run_channels(Ops& ops, const SsmSpec& spec, const SsmWeights& weights, const KvView& kv, Tensor in, Tensor y) {
  Tensor both = ops.scratch(in.rows, in_rows(spec)), x = ops.scratch(in.rows, spec.inner);
  ops.linear(weights.in, in, both);
  ops.convolve(convolution(spec, weights), columns(both, 0, spec.inner), kv.state, x);
  Tensor parts = ops.scratch(in.rows, spec.rank + 2 * spec.state), steps = ops.scratch(in.rows, spec.inner);
  ops.linear(weights.parts, x, parts);
  const Tensor low = columns(parts, 0, spec.rank), b = columns(parts, spec.rank, spec.state);
  const Tensor c = columns(parts, spec.rank + spec.state, spec.state);
  if (spec.part_norm) {
    ops.norm(weights.step_norm, 1, low, low);
    ops.norm(weights.b_norm, 1, b, b);
    ops.norm(weights.c_norm, 1, c, c);
  }
  ops.linear(weights.steps, low, steps);
  const ChannelScan scan = {
      .kind = ChannelScanKind::selective, .states = spec.state, .constants = {weights.rate, weights.skip, nullptr}};
  ops.scan_channels(scan, {.a = x, .b = steps, .c = b, .d = c}, kv.state, y);
  ops.glu(Activation::silu, columns(both, spec.inner, spec.inner), y, y);
}

void run_heads(Ops& ops, const SsmSpec& spec, const SsmWeights& weights, const KvView& kv, Tensor in, Tensor y) {
  const int64_t shared = int64_t{spec.groups} * spec.state, width = convolved(spec);
  Tensor all = ops.scratch(in.rows, in_rows(spec)), mixed = ops.scratch(in.rows, width);
  ops.linear(weights.in, in, all);
  if (weights.scales != nullptr) ops.scale(weights.scales, all.cols, all);
  ops.convolve(convolution(spec, weights), columns(all, spec.inner, width), kv.state, mixed);
  const HeadScan scan = {.heads = spec.heads,
                         .key_heads = spec.groups,
                         .key_dim = spec.state,
                         .value_dim = spec.inner / spec.heads,
                         .rate = weights.rate,
                         .step_bias = weights.step_bias,
                         .skip = weights.skip,
                         .least = spec.least_step,
                         .most = spec.most_step > 0 ? spec.most_step : std::numeric_limits<float>::infinity()};
  ops.scan_heads(scan,
                 {.q = columns(mixed, spec.inner + shared, shared),
                  .k = columns(mixed, spec.inner, shared),
                  .v = columns(mixed, 0, spec.inner),
                  .steps = columns(all, spec.inner + width, spec.heads),
                  .beta = {}},
                 kv.state, y);
  const Tensor gate = columns(all, 0, spec.inner);
  if (spec.norm && spec.norm_before_gate) ops.norm(weights.norm, spec.norm_groups, y, y);
  ops.glu(Activation::silu, gate, y, y);
  if (spec.norm && !spec.norm_before_gate) ops.norm(weights.norm, spec.norm_groups, y, y);
}

}  // namespace

void visit(SlotWalk& walk, const SsmSpec& ssm, SsmWeights& weights) {
  const int64_t width = walk.spec().width, inner = ssm.inner;
  walk.matrix("ssm_in", in_rows(ssm), width, weights.in, {.bias = ssm.bias});
  walk.vector("ssm_conv1d", convolved(ssm) * ssm.conv, weights.conv.weight, ssm.conv);
  if (ssm.conv_bias) walk.vector("ssm_conv1d_b", convolved(ssm), weights.conv.bias);
  if (is_first_kind(ssm)) {
    walk.matrix("ssm_x", ssm.rank + 2 * ssm.state, inner, weights.parts, {});
    walk.norm("ssm_dt_norm", ssm.rank, ssm.part_norm, weights.step_norm);
    walk.norm("ssm_b_norm", ssm.state, ssm.part_norm, weights.b_norm);
    walk.norm("ssm_c_norm", ssm.state, ssm.part_norm, weights.c_norm);
    walk.matrix("ssm_dt", inner, ssm.rank, weights.steps, {.bias = true, .float32 = true});
    walk.vector("ssm_a", inner * ssm.state, weights.rate, ssm.state);
    walk.vector("ssm_d", inner, weights.skip);
  } else {
    walk.vector("ssm_dt_b", ssm.heads, weights.step_bias);
    walk.vector("ssm_a", ssm.heads, weights.rate);
    walk.vector("ssm_d", ssm.heads, weights.skip);
    walk.norm("ssm_norm", inner, ssm.norm, weights.norm, 0, true);
  }
  walk.matrix("ssm_out", width, inner, weights.out, {.bias = ssm.bias});
}

Result<void> check(const ModelSpec&, const SsmSpec& ssm, int32_t) {
  TRY_VOID(in_range("the channels of a state space layer", ssm.inner, kMaxWidth));
  TRY_VOID(in_range("the numbers a channel keeps (state_size)", ssm.state, 1024));
  TRY_VOID(check_taps(ssm.conv));
  TRY_VOID(check_norm(ssm.norm));
  TRY_VOID(check_norm(ssm.part_norm));
  if (!std::isfinite(ssm.out_scale) || !(ssm.least_step >= 0) || !(ssm.most_step >= 0))
    return error(Code::invalid, "steps from {} to {}, a result times {}", ssm.least_step, ssm.most_step, ssm.out_scale);
  if (is_first_kind(ssm)) return in_range("the rank of a state space layer's steps", ssm.rank, kMaxWidth);
  TRY_VOID(in_range("the heads of a state space layer", ssm.heads, ssm.inner));
  TRY_VOID(in_range("the groups of a state space layer", ssm.groups, ssm.heads));
  if (ssm.inner % ssm.heads != 0 || ssm.heads % ssm.groups != 0 || ssm.norm_groups < 1 ||
      ssm.inner % ssm.norm_groups != 0) {
    return error(Code::invalid, "{} channels in {} heads, those in {} groups and norms of {} parts: expected divisors",
                 ssm.inner, ssm.heads, ssm.groups, ssm.norm_groups);
  }
  return in_range("rows of a state space layer's product", in_rows(ssm), kMaxWidth * 8);
}

void run(Ops& ops, const SsmSpec& spec, const SsmWeights& weights, const KvView& kv, Tensor in, Tensor out) {
  const int64_t start = ops.mark();
  Tensor y = ops.scratch(in.rows, spec.inner);
  is_first_kind(spec) ? run_channels(ops, spec, weights, kv, in, y) : run_heads(ops, spec, weights, kv, in, y);
  ops.linear(weights.out, y, out);
  if (spec.out_scale != 1) ops.finish_logits(spec.out_scale, 0, out);
  ops.restore(start);
}

KvShape kv_shape(const SsmSpec& ssm, const KvForm& form) {
  const int64_t heads = is_first_kind(ssm) ? ssm.inner : ssm.heads;
  return {.form = form,
          .state = {.convolution = convolved(ssm) * (ssm.conv - 1),
                    .scan = int64_t{ssm.inner} * ssm.state,
                    .heads = even_cuts({convolved(ssm), heads})}};
}

int64_t count_constants(const SsmSpec& ssm) {
  const bool scaled = std::any_of(ssm.part_scales.begin(), ssm.part_scales.end(), [](float x) { return x != 1; });
  return scaled && !is_first_kind(ssm) ? in_rows(ssm) : 0;
}

Result<void> upload_constants(Backend& backend, const SsmSpec& ssm, std::span<const Rope>, SsmWeights& weights) {
  if (count_constants(ssm) == 0) return {};
  const int64_t shared = int64_t{ssm.groups} * ssm.state;
  const std::array<int64_t, 5> sizes = {ssm.inner, ssm.inner, shared, shared, ssm.heads};
  std::vector<float> scales;
  for (size_t part = 0; part < sizes.size(); ++part)
    scales.insert(scales.end(), static_cast<size_t>(sizes[part]), ssm.part_scales[part]);
  TRY(weights.scales, backend.upload_vector(scales));
  return {};
}

}  // namespace millrace
