// Mixtures of experts: every kind of router, products of pairs with their experts in every weight format, and a row's
// bits however many rows its experts have.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "eval/ops/scene.h"

namespace millrace {
namespace {

struct RouterKind {
  std::string name;
  int32_t experts, chosen;
  RouterScore score = RouterScore::softmax;
  bool bias = false;
  int32_t groups = 1, chosen_groups = 1;
  GroupScore group_score = GroupScore::most;
  bool normalise = false, scales = false, ties = false;
};

const std::vector<RouterKind>& router_kinds() {
  static const std::vector<RouterKind> all = {
      {"softmax", 8, 2},
      {"softmax of many, normed", 128, 8, RouterScore::softmax, false, 1, 1, GroupScore::most, true},
      {"softmax with ties", 60, 4, RouterScore::softmax, false, 1, 1, GroupScore::most, true, false, true},
      {"softmax over the chosen", 32, 4, RouterScore::softmax_chosen},
      {"softmax in groups", 160, 6, RouterScore::softmax, false, 8, 3},
      {"sigmoid with bias, in groups by two", 256, 8, RouterScore::sigmoid, true, 8, 4, GroupScore::best_two, true},
      {"sigmoid, one expert, scaled", 16, 1, RouterScore::sigmoid, false, 1, 1, GroupScore::most, false, true},
      {"root of softplus with bias", 64, 6, RouterScore::sqrt_softplus, true, 1, 1, GroupScore::most, true},
      {"sparse mixer", 16, 2, RouterScore::sparse_mixer},
      {"all experts", 5, 5},
  };
  return all;
}

Router router_of(Rig& rig, const RouterKind& kind) {
  Chance chance(501);
  const std::vector<float> bias = chance.normals(kind.experts, 0.2f), scales = chance.normals(kind.experts);
  return {.experts = kind.experts,
          .chosen = kind.chosen,
          .score = kind.score,
          .choice_bias = kind.bias ? rig.vector(bias) : nullptr,
          .groups = kind.groups,
          .chosen_groups = kind.chosen_groups,
          .group_score = kind.group_score,
          .normalise = kind.normalise,
          .epsilon = kind.normalise ? 1e-20f : 0,
          .scale = 1.25f,
          .expert_scale = kind.scales ? rig.vector(scales) : nullptr,
          .jitter = kind.score == RouterScore::sparse_mixer ? 0.01f : 0};
}

// A routing on the host.
struct Routed {
  std::vector<int32_t> expert, place, row, first;
  Numbers weight;
};
Routed read(Rig& rig, const Routing& routing) {
  rig.finish();
  Routed host;
  auto take = [&](std::vector<int32_t>& to, const int32_t* from, int64_t count) {
    to.resize(static_cast<size_t>(count));
    rig.backend().copy(reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<const std::byte*>(from), count * 4);
  };
  take(host.expert, routing.expert, routing.pairs());
  take(host.place, routing.place, routing.pairs());
  take(host.row, routing.row, routing.pairs());
  take(host.first, routing.first, routing.experts + 1);
  host.weight = Numbers(routing.rows, routing.chosen);
  rig.backend().copy(reinterpret_cast<std::byte*>(host.weight.all.data()),
                     reinterpret_cast<const std::byte*>(routing.weight), routing.pairs() * 4);
  return host;
}

Routed route(Rig& rig, const RouterKind& kind, const Numbers& logits) {
  const Router router = router_of(rig, kind);
  rig.begin(static_cast<int32_t>(logits.rows));
  const Tensor from = rig.bring(logits);
  const Routing routing = rig.ops().scratch_routing(router, logits.rows);
  rig.ops().route(router, from, routing);
  return read(rig, routing);
}

void check_router(const RouterKind& kind, Scene& scene, Verdict& verdict) {
  Chance chance(502);
  Numbers logits(300, kind.experts, chance, 2);
  if (kind.ties) {
    for (float& logit : logits.all) logit = std::round(2 * logit) / 2;
  }
  const Routed found = route(scene.device, kind, logits), right = route(scene.reference, kind, logits);
  verdict.close(found.weight, right.weight, "weights");
  int64_t other = 0, first = -1;
  for (size_t i = 0; i < right.expert.size(); ++i) {
    if (found.expert[i] == right.expert[i]) continue;
    if (first < 0) first = static_cast<int64_t>(i);
    ++other;
  }
  verdict.expect(other == 0,
                 fmt::format("{} of {} experts are others; the first is pair {}: {}, not {}", other,
                             right.expert.size(), first, first < 0 ? 0 : found.expert[static_cast<size_t>(first)],
                             first < 0 ? 0 : right.expert[static_cast<size_t>(first)]));
  verdict.expect(found.first == right.first, "experts begin elsewhere");
  verdict.expect(found.place == right.place && found.row == right.row, "pairs lie elsewhere");
  for (const int32_t count : {1, 2, 9, 65}) {
    const Routed some = route(scene.device, kind, logits.some(7, count));
    verdict.same(some.weight, found.weight.some(7, count), fmt::format("weights of {} rows by themselves", count));
    verdict.expect(std::equal(some.expert.begin(), some.expert.end(), found.expert.begin() + 7 * kind.chosen),
                   fmt::format("other experts for {} rows by themselves", count));
  }
}

// A layer of experts, and what every row goes through.
struct Experts {
  static constexpr int32_t kExperts = 12, kChosen = 3;

  Experts(DType type_, int64_t width_, int64_t inner_, bool biases, Chance& chance)
      : type(type_), width(width_), inner(inner_) {
    for (int32_t e = 0; e < kExperts; ++e) {
      gate.emplace_back(type, inner, width, chance);
      up.emplace_back(type, inner, width, chance);
      down.emplace_back(type, width, inner, chance);
    }
    if (!biases) return;
    gate_bias = chance.normals(kExperts * inner), down_bias = chance.normals(kExperts * width);
  }

  DType type;
  int64_t width, inner;
  std::vector<FileMatrix> gate, up, down;
  std::vector<float> gate_bias, down_bias;
};

class Mixture {
 public:
  Mixture(Rig& rig, const Experts& experts)
      : rig_(rig),
        gate_(rig.experts(experts.gate, experts.gate_bias)),
        up_(rig.experts(experts.up, experts.gate_bias)),
        down_(rig.experts(experts.down, experts.down_bias)) {}

  // limited: the gate with limits. spread: rows are weighted before their experts instead of behind.
  Numbers run(const Numbers& in, const Numbers& logits, bool limited, bool spread, bool body) {
    const Router router = {.experts = Experts::kExperts, .chosen = Experts::kChosen, .normalise = true};
    const GluLimit limit = limited ? GluLimit{7, 1.702f, 1} : GluLimit{};
    rig_.begin(static_cast<int32_t>(in.rows));
    const Tensor x = rig_.bring(in), scores = rig_.bring(logits), out = rig_.blank(in.rows, down_.rows);
    Ops& ops = rig_.ops();
    const Routing routing = ops.scratch_routing(router, in.rows);
    ops.route(router, scores, routing);
    Tensor source = x;
    if (spread) {
      source = rig_.blank(routing.pairs(), in.cols);
      ops.spread(routing, x, source);
    }
    const ExpertInput input = spread ? ExpertInput::pairs : ExpertInput::rows;
    const Tensor inner = rig_.blank(routing.pairs(), gate_.rows), given = rig_.blank(routing.pairs(), down_.rows);
    if (body)
      ops.Ops::linear_experts_glu(gate_, up_, Activation::silu, limit, routing, input, source, inner);
    else
      ops.linear_experts_glu(gate_, up_, Activation::silu, limit, routing, input, source, inner);
    ops.linear_experts(down_, routing, ExpertInput::pairs, inner, given);
    ops.combine(routing, !spread, given, out);
    return rig_.read(out);
  }

 private:
  Rig& rig_;
  Weight gate_, up_, down_;
};

void check_mixture(DType type, Scene& scene, Verdict& verdict) {
  Chance chance(static_cast<uint64_t>(type) + 520);
  const int64_t group = format(type).group;
  const int64_t width = std::max<int64_t>(group, 256), inner = (96 + group - 1) / group * group;
  const Experts files(type, width, inner, type == DType::mxfp4 || type == DType::bf16, chance);
  constexpr int32_t kRows = 400;
  const Numbers in(kRows, width, chance), logits(kRows, Experts::kExperts, chance);
  Mixture device(scene.device, files), right(scene.reference, files);
  if (!scene.device.failure().empty()) return;
  constexpr std::array<int32_t, 4> kJudged = {0, 1, 77, kRows - 1};
  for (const bool other : {false, true}) {
    const std::string what = other ? "limited, weighted before" : "plain";
    const Numbers all = device.run(in, logits, other, other, false);
    verdict.close(all.picked(kJudged), right.run(in.picked(kJudged), logits.picked(kJudged), other, other, false),
                  what);
    for (const int32_t count : {1, 2, 8, 30, 100, 300})
      verdict.same(device.run(in.some(3, count), logits.some(3, count), other, other, false), all.some(3, count),
                   fmt::format("{}: {} rows by themselves", what, count));
    verdict.same(device.run(in.some(0, 40), logits.some(0, 40), other, other, true), all.some(0, 40),
                 what + ": against the body", true);
  }
  // All rows to the same experts, which then have many, and the others none.
  Numbers crowded = logits;
  for (int64_t r = 0; r < kRows; ++r)
    for (const int32_t e : {4, 5, 11}) crowded.row(r)[e] = 9 + logits.row(r)[e];
  const Numbers all = device.run(in, crowded, false, false, false);
  verdict.close(all.picked(kJudged), right.run(in.picked(kJudged), crowded.picked(kJudged), false, false, false),
                "three experts for all");
  verdict.same(device.run(in.some(5, 1), crowded.some(5, 1), false, false, false), all.some(5, 1),
               "three experts for all: a row by itself");
}

void check_gated(Scene& scene, Verdict& verdict) {
  Chance chance(540);
  const Numbers in(40, 200, chance), gate(40, 1, chance), to(40, 200, chance);
  auto run = [&](Rig& rig) {
    rig.begin(40);
    const Tensor from = rig.bring(in), share = rig.bring(gate), out = rig.bring(to);
    rig.ops().add_gated(from, share, out);
    return rig.read(out);
  };
  verdict.close(run(scene.device), run(scene.reference), "a shared expert");
}

}  // namespace

void add_expert_checks(std::vector<OpsCheck>& checks, double allowed) {
  constexpr double kExact = 2e-5;
  for (const RouterKind& kind : router_kinds())
    checks.push_back({"route by " + kind.name, kExact, [&kind](Scene& s, Verdict& v) { check_router(kind, s, v); }});
  for (const DType type : weight_formats())
    checks.push_back({"experts of " + std::string(format(type).name), 3 * allowed,
                      [type](Scene& s, Verdict& v) { check_mixture(type, s, v); }});
  checks.push_back({"add_gated", kExact, check_gated});
}

}  // namespace millrace
