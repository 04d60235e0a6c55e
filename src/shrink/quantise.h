// Quantising against a teacher: layer by layer, each step kept only if the KL on held-out text falls. One thread, with
// a team.
#pragma once

#include <span>
#include <vector>

#include "shrink/heal.h"
#include "shrink/rounding.h"
#include "shrink/trial.h"

namespace millrace {

// Codes of each layer's matrices are chosen anew by GPTQ, from what the student's own layers before it give. `wide` has
// the numbers they came from. Experts keep their codes.
Result<Comparison> quantise_by_gptq(Team& team, const ModelSource& wide, Student& student, const Rounding& rounding,
                                    std::span<const ScoredText> texts, Judge& judge, const StepOptions& options);
// The same of a student that has every matrix in its format already.
Result<Comparison> quantise_by_gptq(Team& team, const ModelSource& wide, ModelSource& student,
                                    std::span<const ScoredText> texts, Judge& judge, const StepOptions& options);

// Heals matrices in the given order, each in the format the student has it in.
Result<Comparison> heal_all(Team& team, HealBench& bench, ModelSource& student, std::span<const HealPair> order,
                            Judge& judge, const StepOptions& options);
// Several matrices a step, which are kept together or not at all.
Result<Comparison> heal_all(Team& team, HealBench& bench, ModelSource& student,
                            std::span<const std::vector<HealPair>> steps, Judge& judge, const StepOptions& options);

// The student on the judge's text.
Result<Comparison> judge_source(const ModelSource& source, Judge& judge, const StepOptions& options);

}  // namespace millrace
