// What products of one layer of a student read over the texts, as sums: for methods that change layer after layer. With
// a walk (shrink/walk.h) that layer alone is run; where layers cannot run alone the whole student is, with the same
// numbers. One thread, with a team.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "shrink/sums.h"
#include "shrink/trial.h"
#include "shrink/walk.h"

namespace millrace {

class LayerReader {
 public:
  // The texts and options outlive it.
  static Result<LayerReader> make(const ModelSpec& spec, std::span<const ScoredText> texts, const StepOptions& options);

  // Of a layer (-1: the head); x x^T of the slots that `products` names. `use` gets the sums while the layer is loaded.
  Result<void> read(Team& team, Trial& now, int32_t layer, const std::function<bool(const Slot& slot)>& products,
                    const std::function<Result<void>(InputSums& sums)>& use);

  // The layer is as it will stay; if it did not change, what it gave before holds.
  Result<void> settled(const Student& student, int32_t layer, bool changed);

 private:
  LayerReader(std::span<const ScoredText> texts, const StepOptions& options) : texts_(texts), options_(options) {}

  std::span<const ScoredText> texts_;
  const StepOptions& options_;
  std::unique_ptr<LayerWalk> walk_;  // null: layers cannot run alone
};

}  // namespace millrace
