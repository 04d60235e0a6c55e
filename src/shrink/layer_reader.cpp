#include "shrink/layer_reader.h"

namespace millrace {

Result<LayerReader> LayerReader::make(const ModelSpec& spec, std::span<const ScoredText> texts,
                                      const StepOptions& options) {
  LayerReader out(texts, options);
  if (!LayerWalk::check(spec).ok()) return out;  // what it is refused for is that layers cannot run alone
  TRY(out.walk_, LayerWalk::make(spec, texts, options.student));
  return out;
}

Result<void> LayerReader::read(Team& team, Trial& now, int32_t layer,
                               const std::function<bool(const Slot& slot)>& products,
                               const std::function<Result<void>(InputSums& sums)>& use) {
  if (walk_ != nullptr) {
    const ModelSource& source = now.student.source;
    const int32_t at = layer >= 0 ? layer : static_cast<int32_t>(source.spec().layers.size()) - 1;
    TRY_VOID(walk_->reach(at, source, options_.progress));
    TRY(const auto alone, LoneLayer::load(source, at, options_.student));
    TRY(const auto sums, InputSums::make(alone->model(), alone->backend(), team, products));
    alone->watch(sums.get());
    TRY_VOID(walk_->run(*alone, options_.progress));
    return use(*sums);
  }
  TRY_VOID(load_again(now, options_));
  TRY(const auto sums, InputSums::make(*now.loaded.model, *now.loaded.backend, team, products));
  ObservedBackend observed(*now.loaded.backend, *sums);
  TRY(auto executor,
      Executor::create(*now.loaded.model, observed, scoring_options(texts_, now.loaded.model->spec().vocab)));
  TRY_VOID(run_pass(*executor, texts_, options_.progress));
  return use(*sums);
}

Result<void> LayerReader::settled(const Student& student, int32_t layer, bool changed) {
  const auto layers = static_cast<int32_t>(student.source.spec().layers.size());
  if (walk_ == nullptr || layer < 0 || layer + 1 >= layers || layer != walk_->layer()) return {};
  if (changed) return walk_->reach(layer + 1, student.source, options_.progress);
  walk_->advance();
  return {};
}

}  // namespace millrace
