// A narrower residual stream. Two ways: its numbers are turned so that the directions which carry the most come first,
// and the rest goes (the weights of norms are folded into what reads them before, so that turning changes nothing); or
// the numbers that are read most stay as they are. Either is one matrix R: new stream = R * old stream, for all layers
// the same, so the result is an ordinary model with a smaller hidden size. Norms that take off a mean keep doing so and
// find it zero: R's columns are turned away from that direction. One thread, with a team.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/team.h"
#include "shrink/heal.h"
#include "shrink/sums.h"

namespace millrace {

struct Narrowing {
  int64_t wide = 0, narrow = 0;
  std::vector<float> rows;   // [narrow, wide] R
  std::vector<double> kept;  // what share of each norm's stream stays, as the root of squares; in the order of norms
  bool chosen = false;       // R picks numbers; false: it turns them
};

// Whether a stream can be narrowed without anything becoming inexact but what is cut off; else why not.
Result<void> check_narrowable(const ModelSpec& spec);
// Whether rows of that length fill the formats of the file, and how many may stay.
Result<void> check_width(const ModelSource& source, int64_t width);

// Weights (and biases) of the stream's norms go into the matrices that read them; a head that was the table becomes one
// of its own. The model computes the same.
Result<void> fold_norms(ModelSource& source);

// What is read of the stream over texts, all norms together: x x^T of the folded model, and who reads each number how
// strongly.
struct StreamSums {
  std::vector<double> products;  // [wide, wide], whole
  int64_t rows = 0;
};
Result<StreamSums> sum_stream(Team& team, const Loaded& folded, std::span<const ScoredText> texts,
                              const PassProgress& progress);

// The directions that carry the most.
Result<Narrowing> turned(Team& team, const ModelSpec& spec, const StreamSums& sums, int64_t width);
// The numbers that are read most: squares times the squares of what the folded model's matrices read them with.
Result<Narrowing> chosen(const ModelSource& folded, const StreamSums& sums, int64_t width);
// Fills `kept`, by texts.
Result<void> measure_kept(Team& team, const Loaded& folded, std::span<const ScoredText> texts, Narrowing& narrowing,
                          const PassProgress& progress);

// The model with the narrower stream. A turned one is made from the folded model, a chosen one from the model itself.
Result<void> narrow_stream(Team& team, ModelSource& source, const Narrowing& narrowing);

// What is healed of such a student, step by step: matrices that read the stream to what the teacher's gave, those that
// write to where the teacher's stream was (HealBench turns it by R), then the head.
std::vector<std::vector<HealPair>> heal_steps(const ModelSpec& student, const ModelSpec& teacher,
                                              std::span<const int32_t> layers);

}  // namespace millrace
