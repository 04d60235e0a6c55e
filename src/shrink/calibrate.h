// Calibrating: a text goes through the model, and what every product reads of it is added up (shrink/imatrix.h). Texts
// go in batches, and a batch's sums do not depend on how the run was interrupted, so that a run which goes on later
// ends with the same bytes. One thread.
#pragma once

#include <functional>
#include <span>

#include "shrink/imatrix.h"
#include "shrink/passes.h"

namespace millrace {

struct CalibrateOptions {
  bool head = false;  // of the head as well
  int threads = 0;    // of the sums; 0: one for every core
  PassProgress progress;
  // Called between batches with what is there so far; false stops.
  std::function<bool(const Importance& so_far)> between;
};

struct Calibration {
  Importance importance;
  TextScore score;  // of the texts that were computed in this run
  int unread = 0;   // matrices of experts that no row came to
};

// `begun` is what an earlier run left (chunks says how many texts it had), or empty.
Result<Calibration> calibrate(const Model& model, const ModelSource& source, Backend& backend,
                              std::span<const ScoredText> texts, Importance begun, const CalibrateOptions& options);

}  // namespace millrace
