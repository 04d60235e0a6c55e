#include "shrink/quantise.h"

#include <map>

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

bool takes_codes(const ModelSource& source, const Slot& slot) {
  return slot.kind == SlotKind::matrix && slot.weight && slot.experts == 0 && !slot.float32 &&
         slot.use == WeightUse::linear && grid_format(source.type_of(slot)).grid != nullptr;
}

// A candidate for a part of the student, and what it is judged to be.
struct Trial {
  ModelSource source;
  Loaded loaded;
  Comparison judged;
};

Result<Trial> try_out(ModelSource source, Judge& judge, const StepOptions& options) {
  Trial trial = {.source = std::move(source), .loaded = {}, .judged = {}};
  TRY(trial.loaded, load_student(trial.source, options.student));
  TRY(trial.judged, judge.judge(*trial.loaded.model, *trial.loaded.backend, options.progress));
  return trial;
}

// Keeps the candidate if it is nearer to the teacher. The student that stays was let go to make room, and is loaded
// anew.
Result<void> settle(Trial& now, Trial candidate, StepReport report, const StepOptions& options) {
  report.before = now.judged.kl_mean();
  report.after = candidate.judged.kl_mean();
  report.kept = report.after < report.before;
  if (report.kept) {
    now = std::move(candidate);
  } else {
    TRY(now.loaded, load_student(now.source, options.student));
  }
  if (options.listener && !options.listener(report)) return error(Code::cancelled, "stopped after {}", report.what);
  return {};
}

// Codes of one layer, or of the head (-1), by GPTQ.
Result<StepReport> requantise_layer(Team& team, const ModelSource& wide, const Loaded& student,
                                    std::span<const ScoredText> texts, int32_t layer, ModelSource& next,
                                    const StepOptions& options) {
  std::map<std::string, std::vector<Slot>> inputs;
  for (const Slot& slot : slots(next.spec())) {
    if (slot.layer == layer && takes_codes(next, slot)) inputs[input_of(slot)].push_back(slot);
  }
  StepReport report = {.what = layer < 0 ? "head" : fmt::format("layer {}", layer), .ridge = options.ridge};
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
      TRY(const std::vector<float> numbers, read_matrix(wide, slot, 0));
      const DType type = next.type_of(slot);
      TRY(std::vector<std::byte> codes, gptq(team, numbers, slot.rows, curvature, {.type = type}));
      next.put_matrix(slot, 0, type, std::move(codes));
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

}  // namespace

Result<Comparison> judge_source(const ModelSource& source, Judge& judge, const StepOptions& options) {
  TRY(const Loaded loaded, load_student(source, options.student));
  return judge.judge(*loaded.model, *loaded.backend, options.progress);
}

Result<Comparison> quantise_by_gptq(Team& team, const ModelSource& wide, ModelSource& student,
                                    std::span<const ScoredText> texts, Judge& judge, const StepOptions& options) {
  TRY(Trial now, try_out(student, judge, options));
  const auto layers = static_cast<int32_t>(student.spec().layers.size());
  for (int32_t step = 0; step <= layers; ++step) {
    const int32_t layer = step < layers ? step : -1;
    ModelSource next = now.source;
    TRY(StepReport report, requantise_layer(team, wide, now.loaded, texts, layer, next, options));
    now.loaded = {};
    TRY(Trial candidate, try_out(std::move(next), judge, options));
    TRY_VOID(settle(now, std::move(candidate), std::move(report), options));
  }
  student = std::move(now.source);
  return now.judged;
}

Result<Comparison> heal_all(Team& team, HealBench& bench, ModelSource& student, std::span<const HealPair> order,
                            Judge& judge, const StepOptions& options) {
  TRY(Trial now, try_out(student, judge, options));
  for (const HealPair& pair : order) {
    ModelSource next = now.source;
    TRY(const HealSums sums, bench.measure(now.loaded, pair, options.progress));
    now.loaded = {};
    StepReport report = {.what = pair.slot};
    TRY(report.ridge, heal_one(team, sums, next, options.ridge));
    TRY(Trial candidate, try_out(std::move(next), judge, options));
    TRY_VOID(settle(now, std::move(candidate), std::move(report), options));
  }
  student = std::move(now.source);
  return now.judged;
}

}  // namespace millrace
