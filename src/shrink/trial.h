// Steps that are tried: a changed student is judged against the teacher on held-out text, and kept only if its KL
// falls. One thread.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shrink/journal.h"
#include "shrink/judge.h"
#include "shrink/rounding.h"

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
  PassProgress progress;         // within a pass
  bool rounded_inputs = false;   // judged with what products read rounded to 8 bits, token by token
  const Folds* folds = nullptr;  // that numbers of the teacher go through before they are quantised
  Journal* journal = nullptr;    // what an earlier run decided, and where decisions are kept; null: nowhere
};

// A student, loaded, and what it is judged to be.
struct Trial {
  Student student;
  Loaded loaded;
  Comparison judged;
};

Result<Trial> try_out(Student student, Judge& judge, const StepOptions& options);

// Loads a student that was let go to make room.
Result<void> load_again(Trial& trial, const StepOptions& options);

// Keeps the candidate if it is nearer to the teacher. The student that stays may be one that was let go to make room.
// Whether the candidate was kept. With the slots that were changed the step is written down in the journal.
Result<bool> settle(Trial& now, Trial candidate, StepReport report, const StepOptions& options,
                    const std::vector<Slot>* changed = nullptr);

// Writes down what became of a step, and tells whoever listens.
Result<void> say_step(const StepReport& report, const Student& student, const std::vector<Slot>* changed,
                      const StepOptions& options);

// Steps that an earlier run took, by their names, are taken again as it took them. How many these were.
Result<size_t> take_again(Student& student, std::span<const std::string> steps, const StepOptions& options);

}  // namespace millrace
