// Operations on pairs of rows and experts, one by one: what experts.cpp has in a row with others. Pairs are judged in
// the order of their rows, since where they lie follows from all rows of a step.
#include <algorithm>

#include <fmt/format.h>

#include "eval/ops/scene.h"

namespace millrace {
namespace {

constexpr double kExactPairs = 2e-5;
constexpr int32_t kPairRows = kJudgedRows, kPairExperts = 12, kPairChosen = 3;
constexpr int64_t kPairWidth = 96;

std::vector<int32_t> pair_places(Rig& rig, const Routing& routing) {
  rig.finish();
  std::vector<int32_t> places(static_cast<size_t>(routing.pairs()));
  rig.backend().copy(reinterpret_cast<std::byte*>(places.data()), reinterpret_cast<const std::byte*>(routing.place),
                     routing.pairs() * static_cast<int64_t>(sizeof(int32_t)));
  return places;
}

// Pairs in the order of their rows, and back to where they lie.
Numbers by_rows(const Numbers& lying, std::span<const int32_t> places) { return lying.picked(places); }
Numbers as_lying(const Numbers& rows, std::span<const int32_t> places) {
  Numbers lying(rows.rows, rows.cols);
  for (int64_t i = 0; i < rows.rows; ++i)
    std::copy_n(rows.row(i), rows.cols, lying.row(places[static_cast<size_t>(i)]));
  return lying;
}

// A step of these rows with its routing.
struct RoutedStep {
  RoutedStep(Rig& rig, const Numbers& logits, int32_t first, int32_t count) {
    const Router router = {.experts = kPairExperts, .chosen = kPairChosen, .normalise = true};
    rig.begin(count);
    const Tensor scores = rig.bring(logits.some(first, count));
    routing = rig.ops().scratch_routing(router, count);
    rig.ops().route(router, scores, routing);
    places = pair_places(rig, routing);
  }
  Routing routing;
  std::vector<int32_t> places;
};

void check_spread(Scene& scene, Verdict& verdict) {
  Chance chance(551);
  const Numbers logits(kPairRows, kPairExperts, chance), in(kPairRows, kPairWidth, chance);
  judge_rows(scene, verdict, "rows to pairs", [&](Rig& rig, int32_t first, int32_t count) {
    const RoutedStep step(rig, logits, first, count);
    const Tensor from = rig.bring(in.some(first, count)), out = rig.blank(step.routing.pairs(), kPairWidth);
    rig.ops().spread(step.routing, from, out);
    const Numbers pairs = by_rows(rig.read(out), step.places);
    Numbers rows(count, kPairChosen * kPairWidth);
    rows.all = pairs.all;
    return rows;
  });
}

void check_combine(Scene& scene, Verdict& verdict) {
  Chance chance(552);
  const Numbers logits(kPairRows, kPairExperts, chance), pairs(kPairRows * kPairChosen, kPairWidth, chance);
  for (const bool weighted : {false, true}) {
    judge_rows(scene, verdict, weighted ? "weighted" : "as they are", [&](Rig& rig, int32_t first, int32_t count) {
      const RoutedStep step(rig, logits, first, count);
      const Tensor from = rig.bring(as_lying(pairs.some(first * kPairChosen, count * kPairChosen), step.places)),
                   out = rig.blank(count, kPairWidth);
      rig.ops().combine(step.routing, weighted, from, out);
      return rig.read(out);
    });
  }
}

void check_glu_limited(Scene& scene, Verdict& verdict) {
  Chance chance(553);
  const Numbers gate(kPairRows, 300, chance, 4), up(kPairRows, 300, chance, 4);
  for (const GluLimit& limit : {GluLimit{7, 1.702f, 1}, {3, 1, 0}}) {
    for (const bool in_place : {false, true}) {
      judge_rows(scene, verdict, fmt::format("a limit of {}{}", limit.limit, in_place ? ", in place" : ""),
                 [&](Rig& rig, int32_t first, int32_t count) {
                   rig.begin(count);
                   const Tensor a = rig.bring(gate.some(first, count)), b = rig.bring(up.some(first, count)),
                                out = in_place ? b : rig.blank(count, 300);
                   rig.ops().glu_limited(limit, a, b, out);
                   return rig.read(out);
                 });
    }
  }
}

void check_linear_experts(DType type, Scene& scene, Verdict& verdict) {
  Chance chance(static_cast<uint64_t>(type) + 560);
  const int64_t group = format(type).group, cols = std::max<int64_t>(group, 160 / group * group), rows = 72;
  std::vector<FileMatrix> files;
  for (int32_t e = 0; e < kPairExperts; ++e) files.emplace_back(type, rows, cols, chance);
  const std::vector<float> bias = chance.normals(kPairExperts * rows);
  const Weight device = scene.device.experts(files, bias), right = scene.reference.experts(files, bias);
  if (!scene.device.failure().empty()) return;
  const Numbers logits(kPairRows, kPairExperts, chance);
  for (const ExpertInput input : {ExpertInput::rows, ExpertInput::pairs}) {
    const bool pairs = input == ExpertInput::pairs;
    const int32_t each = pairs ? kPairChosen : 1;
    const Numbers in(kPairRows * each, cols, chance);
    judge_rows(scene, verdict, pairs ? "of pairs" : "of rows", [&](Rig& rig, int32_t first, int32_t count) {
      const RoutedStep step(rig, logits, first, count);
      const Numbers some = in.some(first * each, count * each);
      const Tensor from = rig.bring(pairs ? as_lying(some, step.places) : some),
                   out = rig.blank(step.routing.pairs(), rows);
      rig.ops().linear_experts(&rig == &scene.device ? device : right, step.routing, input, from, out);
      Numbers found(count, kPairChosen * rows);
      found.all = by_rows(rig.read(out), step.places).all;
      return found;
    });
  }
}

}  // namespace

void add_pair_checks(std::vector<OpsCheck>& checks, double allowed) {
  checks.push_back({"spread", kExactPairs, check_spread});
  checks.push_back({"combine", kExactPairs, check_combine});
  checks.push_back({"glu_limited", kExactPairs, check_glu_limited});
  for (const DType type : weight_formats())
    checks.push_back({"linear_experts " + std::string(format(type).name), allowed,
                      [type](Scene& s, Verdict& v) { check_linear_experts(type, s, v); }});
}

}  // namespace millrace
