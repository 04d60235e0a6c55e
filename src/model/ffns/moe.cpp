// A mixture of experts: a router sends every token through a few of many feed-forward networks, and perhaps through
// shared ones that every token passes.
#include <cmath>

#include "model/ffns/ffns.h"
#include "model/limits.h"

namespace millrace {
namespace {

Router router_of(const MoeSpec& spec, const MoeWeights& weights) {
  const RouterSpec& router = spec.router;
  return {.experts = spec.experts,
          .chosen = spec.chosen,
          .score = router.score,
          .choice_bias = weights.choice_bias,
          .groups = router.groups,
          .chosen_groups = router.chosen_groups,
          .group_score = router.group_score,
          .normalise = router.normalise,
          .epsilon = router.epsilon,
          .scale = router.scale,
          .expert_scale = weights.expert_scale,
          .jitter = router.jitter};
}

// What GGUF calls a way of scoring.
int64_t gating_number(RouterScore score) {
  switch (score) {
    case RouterScore::softmax:
    case RouterScore::sparse_mixer:
      return 1;
    case RouterScore::sigmoid:
      return 2;
    case RouterScore::softmax_chosen:
      return 3;
    case RouterScore::sqrt_softplus:
      return 4;
  }
  return 0;
}

void run_shared(Ops& ops, const MoeSpec& spec, const MoeWeights& weights, Tensor in, Tensor out) {
  const int64_t start = ops.mark();
  Tensor inner = ops.scratch(in.rows, spec.shared_width), given = ops.scratch(in.rows, out.cols);
  if (spec.gated) {
    ops.linear_glu(weights.shared_gate, weights.shared_up, spec.activation, in, inner);
  } else {
    ops.linear(weights.shared_up, in, inner);
    ops.activate(spec.activation, inner, inner);
  }
  ops.linear(weights.shared_down, inner, given);
  if (spec.shared_gate) {
    Tensor share = ops.scratch(in.rows, 1);
    ops.linear(weights.shared_router, in, share);
    ops.add_gated(given, share, out);
  } else {
    ops.add(given, 1, out);
  }
  ops.restore(start);
}

}  // namespace

void visit(SlotWalk& walk, const MoeSpec& moe, MoeWeights& weights) {
  const int64_t width = walk.spec().width;
  const SlotWalk::Traits inner = {.bias = moe.bias, .experts = moe.experts};
  walk.matrix("ffn_gate_inp", moe.experts, width, weights.router, {.bias = moe.router.bias, .float32 = true});
  if (moe.router.choice_bias) walk.vector("exp_probs_b", moe.experts, weights.choice_bias);
  if (moe.router.expert_scale) walk.vector("ffn_exps_scale", moe.experts, weights.expert_scale);
  if (moe.gated) walk.matrix("ffn_gate_exps", moe.width, width, weights.gate, inner);
  walk.matrix("ffn_up_exps", moe.width, width, weights.up, inner);
  walk.matrix("ffn_down_exps", width, moe.width, weights.down, {.bias = moe.bias, .experts = moe.experts});
  if (moe.shared_width == 0) return;
  if (moe.shared_gate) walk.matrix("ffn_gate_inp_shexp", 1, width, weights.shared_router, {.float32 = true});
  if (moe.gated) walk.matrix("ffn_gate_shexp", moe.shared_width, width, weights.shared_gate, {});
  walk.matrix("ffn_up_shexp", moe.shared_width, width, weights.shared_up, {});
  walk.matrix("ffn_down_shexp", width, moe.shared_width, weights.shared_down, {});
}

Result<void> check(const MoeSpec& moe) {
  const RouterSpec& router = moe.router;
  TRY_VOID(in_range("the number of experts", moe.experts, kMaxLayers));
  TRY_VOID(in_range("the experts of a token", moe.chosen, moe.experts));
  TRY_VOID(in_range("the width of an expert", moe.width, kMaxWidth));
  TRY_VOID(in_range("the width of all experts", int64_t{moe.experts} * moe.width, kMaxWidth * 8));
  if (moe.shared_width < 0 || moe.shared_width > kMaxWidth)
    return error(Code::invalid, "the width of shared experts is {}: expected 0 (none) to {}", moe.shared_width,
                 kMaxWidth);
  TRY_VOID(in_range("the number of groups of experts", router.groups, std::min(moe.experts, kMostGroups)));
  TRY_VOID(in_range("the groups of a token", router.chosen_groups, router.groups));
  if (!moe.gated && moe.limit.limit > 0)
    return error(Code::invalid, "experts without gates cannot limit them to {}", moe.limit.limit);
  const int32_t group = moe.experts / router.groups;
  if (group * router.groups != moe.experts)
    return error(Code::invalid, "{} experts are not {} groups of one size", moe.experts, router.groups);
  if (moe.chosen > group * router.chosen_groups) {
    return error(Code::invalid, "a token has {} experts, but {} groups of {} have only {}", moe.chosen,
                 router.chosen_groups, group, group * router.chosen_groups);
  }
  if (!std::isfinite(router.scale) || !(router.epsilon >= 0) || !(router.jitter >= 0) || !(moe.limit.limit >= 0) ||
      !std::isfinite(moe.limit.slope) || moe.limit.slope == 0 || !std::isfinite(moe.limit.shift) ||
      !std::isfinite(router.logit_scale)) {
    return error(Code::invalid, "a number of the experts is out of range: scale {}, epsilon {}, jitter {}, limit {}",
                 router.scale, router.epsilon, router.jitter, moe.limit.limit);
  }
  return {};
}

void run(Ops& ops, const MoeSpec& spec, const MoeWeights& weights, Tensor in, Tensor out) {
  run_routed(ops, spec, weights, in, in, out);
}

void run_routed(Ops& ops, const MoeSpec& spec, const MoeWeights& weights, Tensor asked, Tensor in, Tensor out) {
  const int64_t start = ops.mark();
  const Router router = router_of(spec, weights);
  const Routing routing = ops.scratch_routing(router, in.rows);
  Tensor logits = ops.scratch(in.rows, spec.experts);
  ops.linear(weights.router, asked, logits);
  if (spec.router.logit_scale != 1) ops.finish_logits(spec.router.logit_scale, 0, logits);
  ops.route(router, logits, routing);

  Tensor inner = ops.scratch(routing.pairs(), spec.width);
  const int64_t before = ops.mark();
  ExpertInput input = ExpertInput::rows;
  Tensor read = in;
  if (spec.router.on_input) {
    input = ExpertInput::pairs;
    read = ops.scratch(routing.pairs(), in.cols);
    ops.spread(routing, in, read);
  }
  if (spec.gated) {
    ops.linear_experts_glu(weights.gate, weights.up, spec.activation, spec.limit, routing, input, read, inner);
  } else {
    ops.linear_experts(weights.up, routing, input, read, inner);
    ops.activate(spec.activation, inner, inner);
  }
  ops.restore(before);
  Tensor given = ops.scratch(routing.pairs(), out.cols);
  ops.linear_experts(weights.down, routing, ExpertInput::pairs, inner, given);
  ops.combine(routing, !spec.router.on_input, given, out);
  ops.restore(start);
  if (spec.shared_width > 0) run_shared(ops, spec, weights, in, out);
}

void put_keys(GgufKeys& keys, const MoeSpec& spec) {
  const RouterSpec& router = spec.router;
  keys.put("expert_count", spec.experts);
  keys.put("expert_used_count", spec.chosen);
  keys.put("expert_feed_forward_length", spec.width);
  if (spec.shared_width > 0) keys.put("expert_shared_feed_forward_length", spec.shared_width);
  if (spec.shared_width > 0 && spec.shared_width % spec.width == 0)
    keys.put("expert_shared_count", spec.shared_width / spec.width);
  keys.put_flag("expert_weights_norm", router.normalise);
  keys.put_number("expert_weights_scale", router.scale);
  keys.put("expert_gating_func", gating_number(router.score));
  if (router.groups == 1) return;
  keys.put("expert_group_count", router.groups);
  keys.put("expert_group_used_count", router.chosen_groups);
}

void settle_biases(MoeSpec& spec, const Checkpoint& checkpoint, int32_t layer) {
  auto there = [&](std::string_view name) {
    return checkpoint.find(fmt::format("blk.{}.{}.bias", layer, name)) != nullptr;
  };
  spec.bias = there("ffn_down_exps");
  spec.router.bias = there("ffn_gate_inp");
  spec.router.choice_bias = there("exp_probs_b");
}

Result<void> shard(MoeSpec& spec, int32_t ranks) {
  TRY_VOID(check_divides("columns of an expert", spec.width, ranks));
  TRY_VOID(check_divides("columns of the shared experts", spec.shared_width, ranks));
  spec.width /= ranks;
  spec.shared_width /= ranks;
  return {};
}

}  // namespace millrace
