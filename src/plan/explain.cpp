#include "plan/explain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "model/slots.h"

namespace millrace {
namespace {

// Where each slot's weight or norm lies in a model.
class Places {
 public:
  explicit Places(const Model& model) {
    for (const PlacedSlot& each : placed_slots(model.spec(), model.weights()))
      names_.emplace(each.place, each.slot.name);
  }

  // "blk.3.ffn_down" -> layer 3, ffn_down; nothing if it is no place of the model.
  bool find(const void* subject, NamedCall& call) const {
    const auto found = names_.find(subject);
    if (found == names_.end()) return false;
    std::string_view name = found->second;
    call.layer = -1;
    if (name.starts_with("blk.")) {
      name.remove_prefix(4);
      call.layer = std::atoi(std::string(name.substr(0, name.find('.'))).c_str());
      name.remove_prefix(name.find('.') + 1);
    }
    call.name = name;
    return true;
  }

 private:
  std::unordered_map<const void*, std::string> names_;
};

std::vector<NamedCall> name_calls(const CallOps& calls, const Model& model) {
  const Places places(model);
  std::vector<NamedCall> names;
  int32_t layer = -1;
  for (const OpCall& call : calls.calls()) {
    NamedCall named = {.name = std::string(call.op), .layer = layer};
    NamedCall place;
    const bool known = call.subject != nullptr && places.find(call.subject, place);
    const bool norm = call.op == "norm" || call.op == "add_norm";
    if (known && !norm && call.op != "linear_qkv" && !call.op.ends_with("_glu")) named.name += " " + place.name;
    if (known) named.layer = layer = place.layer;
    names.push_back(std::move(named));
  }
  return names;
}

std::vector<StepShare> list_steps(const CallOps& calls) {
  std::vector<StepShare> steps;
  const auto& all = calls.calls();
  for (size_t i = 0; i < all.size(); ++i) {
    if (steps.empty() || all[i].step != all[steps.back().first_call].step)
      steps.push_back({.span = {all[i].begin, 0}, .rows = all[i].rows, .first_call = i});
    steps.back().end_call = i + 1;
    steps.back().span.seconds = all[i].begin + all[i].seconds - steps.back().span.begin;
  }
  return steps;
}

// Ops whose work is handed to the team; the others are done before the others would have woken.
bool forks(const OpCall& call) { return call.op.starts_with("linear") || call.op == "attend"; }

void add_call(std::vector<OpShare>& shares, const std::string& name, const OpCall& call, const Floor& floor,
              double handover) {
  auto share = std::find_if(shares.begin(), shares.end(), [&](const OpShare& each) { return each.name == name; });
  if (share == shares.end()) share = shares.insert(shares.end(), {.name = name});
  ++share->calls;
  share->seconds += call.seconds;
  share->floor += floor;
  if (forks(call)) share->barrier += std::min(handover, std::max(0.0, call.seconds - floor.seconds));
}

void add_phases(const RequestTimeline& timeline, Explanation& result) {
  double prefill = 0, decode = 0, sample = 0, detokenise = 0;
  size_t token = 0;
  for (size_t i = 0; i < result.steps.size(); ++i) {
    const StepShare& step = result.steps[i];
    (step.prefill ? prefill : decode) += step.span.seconds;
    const bool last_of_prompt = step.prefill && (i + 1 == result.steps.size() || !result.steps[i + 1].prefill);
    if ((step.prefill && !last_of_prompt) || token >= timeline.chosen.size()) continue;
    sample += timeline.chosen[token].begin - step.span.end();
    detokenise += timeline.chosen[token].seconds;
    ++token;
  }
  const double known = timeline.tokenise.seconds + prefill + decode + sample + detokenise;
  result.phases = {{"queue", 0},
                   {"template and tokenise", timeline.tokenise.seconds},
                   {"prefill", prefill},
                   {"decode", decode},
                   {"sample", sample},
                   {"detokenise", detokenise},
                   {"between", std::max(0.0, timeline.end - known)}};
}

void add_experts(const CallOps& calls, Explanation& result) {
  for (const RoutedCall& routed : calls.routed()) {
    const int32_t layer = result.names[routed.call].layer;
    auto found = std::find_if(result.experts.begin(), result.experts.end(),
                              [&](const ExpertLoad& each) { return each.layer == layer; });
    if (found == result.experts.end())
      found = result.experts.insert(result.experts.end(), {layer, std::vector<int64_t>(routed.rows.size())});
    for (size_t e = 0; e < routed.rows.size(); ++e) found->tokens[e] += routed.rows[e];
  }
}

}  // namespace

Explanation explain(const CallOps& calls, const RequestTimeline& timeline, const Model& model, const Ceilings& ceilings,
                    double handover) {
  Explanation result;
  result.names = name_calls(calls, model);
  result.steps = list_steps(calls);
  int64_t computed = 0;
  for (StepShare& step : result.steps) {
    step.prefill = computed < timeline.prompt;
    computed += step.rows;
  }
  for (int32_t layer = -1; layer < static_cast<int32_t>(model.spec().layers.size()); ++layer)
    result.layers.push_back({.layer = layer});
  for (const StepShare& step : result.steps) {
    for (size_t i = step.first_call; i < step.end_call; ++i) {
      const OpCall& call = calls.calls()[i];
      const Floor floor = floor_of(calls.records(call), ceilings);
      add_call(step.prefill ? result.prefill : result.decode, result.names[i].name, call, floor, handover);
      (step.prefill ? result.prefill_floor : result.decode_floor) += floor;
      LayerShare& layer = result.layers[static_cast<size_t>(result.names[i].layer + 1)];
      (step.prefill ? layer.prefill : layer.decode) += call.seconds;
    }
  }
  auto longest = [](const OpShare& a, const OpShare& b) { return a.seconds > b.seconds; };
  std::stable_sort(result.prefill.begin(), result.prefill.end(), longest);
  std::stable_sort(result.decode.begin(), result.decode.end(), longest);
  add_phases(timeline, result);
  add_experts(calls, result);
  if (!timeline.chosen.empty()) result.first_token = timeline.chosen.front().begin;
  if (timeline.chosen.size() > 1) {
    result.token = (timeline.chosen.back().begin - timeline.chosen.front().begin) /
                   static_cast<double>(timeline.chosen.size() - 1);
  }
  return result;
}

Growth fit_growth(std::span<const std::pair<double, double>> points) {
  // Normal equations of a + b x + c x^2, weighted so that every point counts alike in percent; x scaled for accuracy.
  double scale = 0;
  for (const auto& [x, y] : points) scale = std::max(scale, std::abs(x));
  if (points.size() < 3 || scale == 0) return {};
  std::array<std::array<double, 4>, 3> m{};
  for (const auto& [x, y] : points) {
    if (y <= 0) continue;
    const double powers[] = {1, x / scale, x * x / scale / scale}, weight = 1 / (y * y);
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 3; ++j) m[i][j] += weight * powers[i] * powers[j];
      m[i][3] += weight * powers[i] * y;
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    size_t pivot = i;
    for (size_t r = i + 1; r < 3; ++r) {
      if (std::abs(m[r][i]) > std::abs(m[pivot][i])) pivot = r;
    }
    std::swap(m[i], m[pivot]);
    if (m[i][i] == 0) return {};
    for (size_t r = 0; r < 3; ++r) {
      if (r == i) continue;
      const double factor = m[r][i] / m[i][i];
      for (size_t c = i; c < 4; ++c) m[r][c] -= factor * m[i][c];
    }
  }
  return {m[0][3] / m[0][0], m[1][3] / m[1][1] / scale, m[2][3] / m[2][2] / scale / scale};
}

}  // namespace millrace
