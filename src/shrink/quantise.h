// Quantising against a teacher: layer by layer, each step kept only if the KL on held-out text falls. One thread, with
// a team.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shrink/heal.h"
#include "shrink/judge.h"
#include "shrink/student.h"

namespace millrace {

// What became of one step.
struct StepReport {
  std::string what;
  double before = 0, after = 0;  // mean KL
  bool kept = false;
  double ridge = 0;
};
// Hears of every step; false stops.
using StepListener = std::function<bool(const StepReport& step)>;

struct StepOptions {
  StudentOptions student;
  double ridge = 0.01;
  StepListener listener;
  PassProgress progress;  // within a pass
};

// `student` has every matrix in its format already; `wide` has the numbers they came from. Codes of each layer's
// matrices are chosen anew by GPTQ, from what the student's own layers before it give. Experts keep theirs.
Result<Comparison> quantise_by_gptq(Team& team, const ModelSource& wide, ModelSource& student,
                                    std::span<const ScoredText> texts, Judge& judge, const StepOptions& options);

// Heals matrices in the given order, each in the format the student has it in.
Result<Comparison> heal_all(Team& team, HealBench& bench, ModelSource& student, std::span<const HealPair> order,
                            Judge& judge, const StepOptions& options);

// The student on the judge's text.
Result<Comparison> judge_source(const ModelSource& source, Judge& judge, const StepOptions& options);

}  // namespace millrace
