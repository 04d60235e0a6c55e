// AWQ: columns that read large inputs are made larger before they are rounded, so that they lose less, and what gives
// their inputs is divided by as much (shrink/folds.h). SmoothQuant: the same folds for products whose inputs are
// rounded too, so that outliers of inputs pass over into weights. Factors come from one number, chosen by what is lost.
// The same for any number of workers. One thread, with a team.
#pragma once

#include <span>
#include <vector>

#include "shrink/trial.h"

namespace millrace {

// x_j^alpha / w_j^(1 - alpha), at least 1e-4, divided by the root of the largest times the smallest. `weights` empty:
// x_j alone. Columns whose input is always zero have 1.
std::vector<float> fold_factors(std::span<const double> inputs, std::span<const double> weights, double alpha);

// For every column of a matrix [rows, cols] the mean over rows of |w| / the largest |w| of its group.
std::vector<double> shares_of_groups(std::span<const float> weights, int64_t rows, int64_t cols, int64_t group);

// Layer by layer, from what the student's layers before it give; a layer's folds are kept only if the KL falls.
// `student` is rounded already; `folds` hears what was kept. `importance` may be null.
Result<Comparison> quantise_by_awq(Team& team, const ModelSource& wide, const FoldPlan& plan, Student& student,
                                   Folds& folds, const Rounding& rounding, const ColumnWeights* importance,
                                   std::span<const ScoredText> texts, Judge& judge, const StepOptions& options);

// One alpha for the whole model, the best on the judge's text with rounded inputs, or no folds. `teacher` gives what
// products read.
Result<Comparison> quantise_by_smoothing(Team& team, const Model& teacher, Backend& backend, const ModelSource& wide,
                                         Student& student, const FoldPlan& plan, Folds& folds, const Rounding& rounding,
                                         const ColumnWeights* importance, std::span<const ScoredText> texts,
                                         Judge& judge, StepOptions options);

}  // namespace millrace
