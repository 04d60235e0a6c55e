// Quantising with a calibration text, as `convert` does it: importance, then codes by GPTQ, each kept only if the KL on
// held-out text falls. Main thread.
#pragma once

#include <map>
#include <string>

#include "apps/cli/cli.h"
#include "eval/compare.h"
#include "model/model.h"
#include "session/loaded_model.h"
#include "shrink/imatrix.h"
#include "shrink/quantise.h"

namespace millrace::apps {

// --method --budget, and calibration_flags().
std::vector<Flag> method_flags();

// The model that --calibrate measures with and its texts, loaded once.
struct Bench {
  std::unique_ptr<LoadedModel> teacher;
  SplitTexts texts;
  std::unique_ptr<Judge> judge;
};
Result<std::unique_ptr<Bench>> open_bench(const Arguments& arguments, const std::filesystem::path& path);
// What every step of a long job says, and how it is stopped.
StepOptions step_options(const Arguments& arguments);

// What products read on the fitted texts.
Result<ColumnWeights> measured_importance(const Arguments& arguments, Bench& bench, const ModelSource& source);

// A format for every matrix under --budget bits a number, by slot.
Result<std::map<std::string, DType>> allocate_types(const Arguments& arguments, Bench& bench, const ModelSource& source,
                                                    const ColumnWeights& importance);

// Puts every matrix of the source in its format.
Result<Comparison> quantise_calibrated(const Arguments& arguments, Bench& bench, ModelSource& source,
                                       const TypeOf& type_of, const ColumnWeights& importance);

}  // namespace millrace::apps
