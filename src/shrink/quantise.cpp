#include "shrink/quantise.h"

#include <algorithm>
#include <map>
#include <optional>

#include "shrink/gptq.h"
#include "shrink/layer_reader.h"
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

// What products of a layer (-1: the head) read, by the first of the slots that share an input.
using Readers = std::map<std::string, std::vector<Slot>>;
Readers readers_of(const ModelSpec& spec, const Rounding& rounding, int32_t layer) {
  Readers out;
  for (const Slot& slot : slots(spec)) {
    if (slot.layer == layer && rounding.takes_codes(slot)) out[input_of(slot)].push_back(slot);
  }
  return out;
}

// Codes by GPTQ from sums over x x^T. Slots that got others are added to `changed`.
Result<void> choose_codes(Team& team, const ModelSource& wide, const Rounding& rounding, const Readers& inputs,
                          InputSums& sums, Student& next, std::vector<Slot>& changed, StepReport& report,
                          const StepOptions& options) {
  const Folds none;
  const Folds& folds = options.folds != nullptr ? *options.folds : none;
  for (const auto& [name, readers] : inputs) {
    SlotSums* read = sums.find(name);
    CHECK(read != nullptr && read->products != nullptr, "{} was watched", name);
    const int64_t cols = read->slot.cols;
    TRY_VOID(check_room(options.student.memory_limit, Curvature::bytes(cols), "the curvature of " + name));
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
  return {};
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
  TRY(const Curvature curvature,
      Curvature::make(team, sums.products, sums.slot.cols, sums.tokens, std::min(ridge, 1.0)));
  TRY(std::vector<std::byte> codes, gptq(team, numbers, sums.slot.rows, curvature, {.type = type}));
  next.put_matrix(sums.slot, 0, type, std::move(codes));
  return ridge;
}

// Matrices healed with the ridge that serves held-out text best: few tokens want more of it than many. From a middling
// one on, tenfold more or less as long as it helps.
Result<Trial> best_healed(Team& team, const Student& now, const std::vector<HealSums>& sums, Judge& judge,
                          const StepOptions& options, double& ridge) {
  constexpr double kMost = 20, kLeast = 1e-5;
  std::optional<Trial> best;
  auto better = [&](double each) -> Result<bool> {
    Student next = now;
    double used = each;
    for (const HealSums& one : sums) {
      TRY(const double needed, heal_one(team, one, next.source, each));
      used = std::max(used, needed);
    }
    TRY(Trial trial, try_out(std::move(next), judge, options));
    if (best && trial.judged.kl_mean() >= best->judged.kl_mean()) return false;
    trial.loaded = {};  // one student at a time
    best = std::move(trial);
    ridge = used;
    return true;
  };
  const double first = 10 * options.ridge;
  TRY_VOID(better(first));
  TRY(bool helps, better(10 * first));
  const bool up = helps;
  if (!up) {
    TRY(helps, better(first / 10));
  }
  for (double each = up ? 100 * first : first / 100; helps && each <= kMost && each >= kLeast; each *= up ? 10 : 0.1) {
    TRY(helps, better(each));
  }
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
  TRY(LayerReader reader, LayerReader::make(wide.spec(), texts, options));
  for (auto step = static_cast<int32_t>(before); step <= layers; ++step) {
    const int32_t layer = step < layers ? step : -1;
    const Readers inputs = readers_of(wide.spec(), rounding, layer);
    StepReport report = {.what = names[static_cast<size_t>(step)], .ridge = options.ridge};
    Student next = now.student;
    std::vector<Slot> changed;
    if (!inputs.empty()) {
      const auto watched = [&](const Slot& slot) { return inputs.contains(slot.name) && slot.layer == layer; };
      TRY_VOID(reader.read(team, now, layer, watched, [&](InputSums& sums) {
        return choose_codes(team, wide, rounding, inputs, sums, next, changed, report, options);
      }));
    }
    now.loaded = {};
    if (changed.empty()) {  // experts alone, or formats without codes
      report.before = report.after = now.judged.kl_mean();
      TRY_VOID(say_step(report, now.student, &changed, options));
      continue;
    }
    TRY(Trial candidate, try_out(std::move(next), judge, options));
    candidate.loaded = {};
    TRY(const bool kept, settle(now, std::move(candidate), std::move(report), options, &changed));
    TRY_VOID(reader.settled(now.student, layer, kept));
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
    std::vector<HealSums> sums;
    if (bench.walks()) {
      TRY(sums, bench.measure(now.student.source, steps[step], options.progress));
    } else {
      TRY_VOID(load_again(now, options));
      TRY(sums, bench.measure(now.loaded, steps[step], options.progress));
    }
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
