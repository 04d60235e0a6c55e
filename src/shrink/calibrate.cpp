#include "shrink/calibrate.h"

#include <algorithm>
#include <map>

#include "eval/divergence.h"
#include "model/convert.h"
#include "shrink/sums.h"

namespace millrace {
namespace {

constexpr size_t kBatch = 64;  // texts

void add_scores(const TextPass& pass, std::span<const ScoredText> texts, Tensor logits, TextScore& score) {
  for (size_t i = 0; i < pass.rows().size(); ++i) {
    const TextPass::Row& row = pass.rows()[i];
    const ScoredText& text = texts[row.text];
    if (row.position + 1 < text.first) continue;
    const std::span<const float> numbers(logits.row(static_cast<int64_t>(i)), static_cast<size_t>(logits.cols));
    const auto next = static_cast<size_t>(text.tokens[static_cast<size_t>(row.position) + 1]);
    const double surprise = log_sum_exp(numbers) - static_cast<double>(numbers[next]);
    ++score.tokens;
    score.surprise += surprise;
    score.squares += surprise * surprise;
  }
}

// The sums under the names files have.
void collect(InputSums& sums, const ModelSource& source, bool head, Importance& out) {
  std::map<std::string, InputSquares> tensors;
  for (const SlotSums& each : sums.slots()) {
    if (each.slot.layer < 0 && !head) continue;
    InputSquares entry = {
        .name = file_tensor(source, each.slot), .experts = each.slot.matrices(), .cols = each.slot.cols};
    if (tensors.contains(entry.name)) continue;  // slots of one tensor read the same
    entry.sums.assign(each.squares, each.squares + entry.experts * entry.cols);
    entry.counts.assign(each.counts.begin(), each.counts.end());
    tensors.emplace(entry.name, std::move(entry));
  }
  out.tensors.clear();
  for (auto& [name, entry] : tensors) out.tensors.push_back(std::move(entry));
}

// Goes on from the sums of an earlier run.
Result<void> go_on(const Importance& begun, const ModelSource& source, InputSums& sums) {
  for (SlotSums& each : sums.slots()) {
    const InputSquares* before = begun.find(file_tensor(source, each.slot));
    if (before == nullptr) continue;
    if (before->cols != each.slot.cols || before->experts != each.slot.matrices())
      return error(Code::invalid, "what was begun is another model's: {} differs in shape", before->name);
    std::copy(before->sums.begin(), before->sums.end(), each.squares);
    for (size_t e = 0; e < each.counts.size(); ++e) each.counts[e] = static_cast<int64_t>(before->counts[e]);
  }
  return {};
}

}  // namespace

Result<Calibration> calibrate(const Model& model, const ModelSource& source, Backend& backend,
                              std::span<const ScoredText> texts, Importance begun, const CalibrateOptions& options) {
  if (texts.empty()) return error(Code::invalid, "there is no text to calibrate with");
  Team team(options.threads > 0 ? options.threads : Team::processors());
  TRY(auto sums, InputSums::make(model, backend, team, nullptr));
  TRY_VOID(go_on(begun, source, *sums));
  ObservedBackend observed(backend, *sums);
  TRY(auto executor, Executor::create(model, observed, scoring_options(texts, model.spec().vocab)));
  Calibration out;
  out.importance = begun;
  int64_t tokens = 0;
  for (auto first = static_cast<size_t>(begun.chunks); first < texts.size(); first += kBatch) {
    const auto batch = texts.subspan(first, std::min(kBatch, texts.size() - first));
    TextPass pass(*executor, batch);
    while (!pass.done()) {
      const Tensor logits = pass.step();
      add_scores(pass, batch, logits, out.score);
      tokens += static_cast<int64_t>(pass.rows().size());
      if (!sums->broken().empty()) {
        return error(Code::corrupt,
                     "{}: what it reads is not finite after {} tokens; the model or its format is broken",
                     sums->broken(), tokens);
      }
      if (options.progress && !options.progress(tokens))
        return error(Code::cancelled, "stopped after {} tokens", tokens);
    }
    collect(*sums, source, options.head, out.importance);
    out.importance.chunks = static_cast<int64_t>(first + batch.size());
    if (options.between && first + batch.size() < texts.size() && !options.between(out.importance))
      return error(Code::cancelled, "stopped after {} texts", out.importance.chunks);
  }
  for (const InputSquares& each : out.importance.tensors)
    out.unread += static_cast<int>(std::count(each.counts.begin(), each.counts.end(), 0.0));
  return out;
}

}  // namespace millrace
