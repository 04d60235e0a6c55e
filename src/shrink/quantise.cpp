#include "shrink/quantise.h"

#include <algorithm>
#include <map>
#include <optional>

#include "shrink/gptq.h"
#include "shrink/sums.h"
#include "tensor/importance.h"

namespace millrace {
namespace {

// Slots that read what this one reads, by name: one x x^T serves them all.
std::string input_of(const Slot& slot) {
  for (const auto& [stem, first] : {std::pair<std::string_view, std::string_view>{".attn_k", ".attn_q"},
                                    {".attn_v", ".attn_q"},
                                    {".attn_gate", ".attn_q"},
                                    {".ffn_up", ".ffn_gate"}}) {
    if (slot.name.ends_with(stem)) return slot.name.substr(0, slot.name.size() - stem.size()) + std::string(first);
  }
  return slot.name;
}

std::string step_name(int32_t layer) { return layer < 0 ? "head" : fmt::format("layer {}", layer); }

// Codes of one layer, or of the head (-1), by GPTQ. Slots that got others are added to `changed`.
Result<StepReport> requantise_layer(Team& team, const ModelSource& wide, const Loaded& student,
                                    const Rounding& rounding, std::span<const ScoredText> texts, int32_t layer,
                                    Student& next, std::vector<Slot>& changed, const StepOptions& options) {
  const Folds none;
  const Folds& folds = options.folds != nullptr ? *options.folds : none;
  std::map<std::string, std::vector<Slot>> inputs;
  for (const Slot& slot : slots(wide.spec())) {
    if (slot.layer == layer && rounding.takes_codes(slot)) inputs[input_of(slot)].push_back(slot);
  }
  StepReport report = {.what = step_name(layer), .ridge = options.ridge};
  if (inputs.empty()) return report;
  const auto watched = [&](const Slot& slot) { return inputs.contains(slot.name) && slot.layer == layer; };
  TRY(auto sums, InputSums::make(*student.model, *student.backend, team, watched));
  ObservedBackend observed(*student.backend, *sums);
  TRY(auto executor, Executor::create(*student.model, observed, scoring_options(texts, student.model->spec().vocab)));
  TRY_VOID(run_pass(*executor, texts, options.progress));
  for (const auto& [name, readers] : inputs) {
    SlotSums* read = sums->find(name);
    CHECK(read != nullptr && read->products != nullptr, "{} was watched", name);
    const int64_t cols = read->slot.cols;
    mirror(read->products, cols);
    const std::span<const double> products(read->products, static_cast<size_t>(cols * cols));
    const double ridge = read->rows() < cols ? 0.1 : options.ridge;
    TRY(const Curvature curvature, Curvature::make(team, products, cols, read->rows(), ridge));
    report.ridge = std::max(report.ridge, curvature.ridge);
    for (const Slot& slot : readers) {
      TRY(const std::vector<float> numbers, folds.matrix(wide, slot, 0));
      TRY_VOID(rounding.put(team, next, slot, 0, numbers, {}, &curvature));
      changed.push_back(slot);
    }
  }
  return report;
}

// The healed matrix in the student's own format.
Result<double> heal_one(Team& team, const HealSums& sums, ModelSource& next, double ridge) {
  TRY(const std::vector<float> weights, read_matrix(next, sums.slot, 0));
  TRY(const std::vector<float> numbers, healed(team, sums, weights, ridge));
  const DType type = next.type_of(sums.slot);
  if (grid_format(type).grid == nullptr) {
    put_quantised(team, next, sums.slot, 0, numbers, type, {});
    return ridge;
  }
  TRY(const Curvature curvature, Curvature::make(team, sums.products, sums.slot.cols, sums.tokens, ridge));
  TRY(std::vector<std::byte> codes, gptq(team, numbers, sums.slot.rows, curvature, {.type = type}));
  next.put_matrix(sums.slot, 0, type, std::move(codes));
  return ridge;
}

// Matrices healed with the ridge that serves held-out text best: few tokens want more of it than many.
Result<Trial> best_healed(Team& team, const Student& now, const std::vector<HealSums>& sums, Judge& judge,
                          const StepOptions& options, double& ridge) {
  std::optional<Trial> best;
  for (double each : {options.ridge, 10 * options.ridge, 100 * options.ridge}) {
    Student next = now;
    double used = each;
    for (const HealSums& one : sums) {
      TRY(const double needed, heal_one(team, one, next.source, each));
      used = std::max(used, needed);
    }
    TRY(Trial trial, try_out(std::move(next), judge, options));
    if (best && trial.judged.kl_mean() >= best->judged.kl_mean()) continue;
    trial.loaded = {};  // one student at a time
    best = std::move(trial);
    ridge = used;
  }
  TRY(best->loaded, load_student(best->student.source, options.student));
  return std::move(*best);
}

}  // namespace

Result<Comparison> judge_source(const ModelSource& source, Judge& judge, const StepOptions& options) {
  TRY(const Loaded loaded, load_student(source, options.student));
  return judge.judge(*loaded.model, *loaded.backend, options.progress);
}

Result<Comparison> quantise_by_gptq(Team& team, const ModelSource& wide, Student& student, const Rounding& rounding,
                                    std::span<const ScoredText> texts, Judge& judge, const StepOptions& options) {
  const auto layers = static_cast<int32_t>(wide.spec().layers.size());
  std::vector<std::string> names;
  for (int32_t step = 0; step <= layers; ++step) names.push_back(step_name(step < layers ? step : -1));
  TRY(const size_t before, take_again(student, names, options));
  TRY(Trial now, try_out(student, judge, options));
  for (auto step = static_cast<int32_t>(before); step <= layers; ++step) {
    const int32_t layer = step < layers ? step : -1;
    Student next = now.student;
    std::vector<Slot> changed;
    TRY(StepReport report, requantise_layer(team, wide, now.loaded, rounding, texts, layer, next, changed, options));
    now.loaded = {};
    TRY(Trial candidate, try_out(std::move(next), judge, options));
    TRY_VOID(settle(now, std::move(candidate), std::move(report), options, &changed));
  }
  student = std::move(now.student);
  return now.judged;
}

Result<Comparison> quantise_by_gptq(Team& team, const ModelSource& wide, ModelSource& student,
                                    std::span<const ScoredText> texts, Judge& judge, const StepOptions& options) {
  const ModelSource types = student;
  const FormatRounding rounding([&types](const Slot& slot) { return types.type_of(slot); });
  Student whole = {.source = student, .codes = {}};
  TRY(Comparison judged, quantise_by_gptq(team, wide, whole, rounding, texts, judge, options));
  student = std::move(whole.source);
  return judged;
}

Result<Comparison> heal_all(Team& team, HealBench& bench, ModelSource& student,
                            std::span<const std::vector<HealPair>> steps, Judge& judge, const StepOptions& options) {
  std::vector<std::string> names;
  for (const std::vector<HealPair>& pairs : steps) {
    std::string name = pairs.front().slot;
    for (size_t i = 1; i < pairs.size(); ++i) name += pairs[i].slot.substr(pairs[i].slot.rfind('.'));
    names.push_back(std::move(name));
  }
  Student whole = {.source = student, .codes = {}};
  TRY(const size_t before, take_again(whole, names, options));
  TRY(Trial now, try_out(std::move(whole), judge, options));
  for (size_t step = before; step < steps.size(); ++step) {
    TRY(const std::vector<HealSums> sums, bench.measure(now.loaded, steps[step], options.progress));
    StepReport report = {.what = names[step]};
    std::vector<Slot> changed;
    if (std::all_of(sums.begin(), sums.end(), [](const HealSums& each) { return each.lost == 0; })) {
      report.before = report.after = now.judged.kl_mean();  // as the teacher's already
      TRY_VOID(say_step(report, now.student, &changed, options));
      continue;
    }
    now.loaded = {};
    TRY(Trial candidate, best_healed(team, now.student, sums, judge, options, report.ridge));
    for (const HealSums& each : sums) changed.push_back(each.slot);
    TRY_VOID(settle(now, std::move(candidate), std::move(report), options, &changed));
  }
  student = std::move(now.student.source);
  return now.judged;
}

Result<Comparison> heal_all(Team& team, HealBench& bench, ModelSource& student, std::span<const HealPair> order,
                            Judge& judge, const StepOptions& options) {
  std::vector<std::vector<HealPair>> steps;
  for (const HealPair& pair : order) steps.push_back({pair});
  return heal_all(team, bench, student, steps, judge, options);
}

}  // namespace millrace
