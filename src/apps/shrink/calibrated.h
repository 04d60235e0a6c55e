// Quantising with a calibration text, as `convert` does it: importance, then codes by GPTQ, each kept only if the KL on
// held-out text falls. Main thread.
#pragma once

#include <map>
#include <string>

#include "apps/cli/cli.h"
#include "eval/compare.h"
#include "model/model.h"
#include "session/loaded_model.h"
#include "shrink/folds.h"
#include "shrink/imatrix.h"
#include "shrink/journal.h"
#include "shrink/quantise.h"

namespace millrace::apps {

// --method --budget, and calibration_flags().
std::vector<Flag> method_flags();

// The model that --calibrate measures with and its texts, loaded once.
struct Bench {
  std::unique_ptr<LoadedModel> teacher;
  SplitTexts texts;
  std::unique_ptr<Judge> judge;  // over all that is held out: what is printed
  std::unique_ptr<Judge> some;   // over some of it; null: all of it is short enough to decide every step by
  Judge& decider() const { return some != nullptr ? *some : *judge; }
  std::unique_ptr<Journal> journal;  // where steps are kept for a run that goes on later; null: nowhere
};
Result<std::unique_ptr<Bench>> open_bench(const Arguments& arguments, const std::filesystem::path& path);
// Opens TARGET.part, where steps are written down; what an earlier run of the same left there is taken up. `flags` are
// those that decide what comes out.
Result<void> open_journal(const Arguments& arguments, Bench& bench, const std::filesystem::path& target,
                          std::string_view flags);
// The same for what stopped: says where the steps are.
Error say_stopped(const Arguments& arguments, const std::filesystem::path& target);
// What every step of a long job says, and how it is stopped.
StepOptions step_options(const Arguments& arguments, const Bench& bench);

// Both models are measured layer by layer, if their layers can run alone.
Result<void> walk_if_possible(const ModelSource& teacher, const StepOptions& options, HealBench& bench);

// What products read on the fitted texts.
Result<ColumnWeights> measured_importance(const Arguments& arguments, Bench& bench, const ModelSource& source);

// A format for every matrix under --budget bits a number, by slot.
Result<std::map<std::string, DType>> allocate_types(const Arguments& arguments, Bench& bench, const ModelSource& source,
                                                    const ColumnWeights& importance);

// Puts every matrix that is rounded, as --method says, each step kept only if the KL falls. `student` has the teacher's
// numbers.
Result<Comparison> quantise_calibrated(const Arguments& arguments, Bench& bench, Student& student,
                                       const Rounding& rounding, const FoldPlan& plan, const ColumnWeights& importance);

}  // namespace millrace::apps
