// Healing in closed form: a matrix that writes to the residual stream (attention's output, the way down of the
// feed-forward part) is moved so that the student's stream comes as near to the teacher's as least squares with a ridge
// can bring it, over a text that goes through both side by side. No gradient, no trainer: x x^T and the stream's error
// times x are all that is kept. One thread, with a team.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/team.h"
#include "model/model.h"
#include "shrink/passes.h"
#include "shrink/student.h"
#include "shrink/walk.h"

namespace millrace {

// One matrix to heal: what the student's `slot` adds should leave its stream as the teacher's is after `target`.
struct HealPair {
  std::string slot, target;
  bool outputs = false;  // what `slot` gives should be what the teacher's `target` gives instead
};

// What a pass over both models says about a pair.
struct HealSums {
  Slot slot;
  std::vector<double> products;  // [cols, cols] of the student's inputs, whole
  std::vector<double> error;     // [rows, cols] of the stream's (or outputs') error times inputs
  int64_t tokens = 0;
  double lost = 0;  // that error, squared, a token
};

// Whether the layer's halves only add to the stream; else why not.
Result<void> check_healable(const ModelSpec& spec);

// The order in which a student with these of the teacher's layers is healed: attention's output, then the way down, of
// every layer; a layer before others that went is brought to where these ended. Ways down of experts are left out.
std::vector<HealPair> heal_order(const ModelSpec& student, std::span<const int32_t> layers, int32_t teacher_layers);

// The teacher beside which students are run.
class HealBench {
 public:
  // The teacher, its backend and the texts outlive it.
  static Result<std::unique_ptr<HealBench>> make(Team& team, const Model& teacher, Backend& backend,
                                                 std::span<const ScoredText> texts);
  ~HealBench();

  Result<HealSums> measure(const Loaded& student, const HealPair& pair, const PassProgress& progress);
  // Several in one pass.
  Result<std::vector<HealSums>> measure(const Loaded& student, std::span<const HealPair> pairs,
                                        const PassProgress& progress);
  // From now on students are measured layer by layer (shrink/walk.h), the teacher as well: one layer of each is loaded
  // and run, not all of both. The source outlives the bench. Refused where layers cannot run alone.
  Result<void> walk(const ModelSource& teacher, const StudentOptions& options);
  bool walks() const { return source_ != nullptr; }
  // Several matrices of one layer, or the head. What comes before that layer must be as it was when a matrix of it was
  // measured before.
  Result<std::vector<HealSums>> measure(const ModelSource& student, std::span<const HealPair> pairs,
                                        const PassProgress& progress);
  // Students have a narrower stream from now on: rows [narrow, the teacher's width] times the teacher's.
  void narrow(std::vector<float> rows) { narrowing_ = std::move(rows); }

 private:
  struct Side;
  struct Step;
  Result<Step> begin(const Model& student, std::span<const HealPair> pairs, int64_t memory_limit) const;
  void add(Step& step) const;
  HealBench(Team& team, const Model& teacher, std::span<const ScoredText> texts);

  Team& team_;
  const Model& teacher_;
  std::span<const ScoredText> texts_;
  std::vector<float> narrowing_;  // empty: streams are of one width
  std::unique_ptr<Side> side_;
  const ModelSource* source_ = nullptr;  // the teacher's, if layers are run one by one
  StudentOptions options_;
  std::unique_ptr<LayerWalk> mine_, theirs_;
};

// What sums of a matrix and solving for it take.
int64_t healing_bytes(const Slot& slot);

// The numbers of the slot's matrix that bring the stream nearest: weights + error (products + ridge)^-1. The ridge is a
// part of the mean of the diagonal; it is raised where inputs are more than tokens, and written back.
Result<std::vector<float>> healed(Team& team, const HealSums& sums, std::span<const float> weights, double& ridge);

}  // namespace millrace
