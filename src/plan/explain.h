// Explain: where the time of one request went, from the timed calls it made (backend/timed): per phase, per layer and
// per op, each beside the least it could have taken here. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/timed/timed.h"
#include "plan/roofline.h"

namespace millrace {

// A stretch of the request's time.
struct Stretch {
  double begin = 0, seconds = 0;
  double end() const { return begin + seconds; }
};

// Everything that happened, in order, seconds from the start of the request.
struct RequestTimeline {
  Stretch tokenise;             // template and tokenizer
  std::vector<Stretch> chosen;  // for each token of the answer: when it was handed out, and the detokenizer's time
  double end = 0;
  int32_t prompt = 0, answer = 0;  // tokens
};

struct PhaseShare {
  std::string name;
  double seconds = 0;
};

// Calls of one kind: the same op on the same matrix of every layer.
struct OpShare {
  std::string name;  // "linear ffn_down"
  int64_t calls = 0;
  double seconds = 0;
  Floor floor;
  double barrier = 0;  // of the seconds: handing work to the other workers and waiting for them

  double limit() const { return floor.seconds; }
  double of_limit() const { return seconds > 0 ? floor.seconds / seconds : 0; }
  double rest() const { return seconds > limit() + barrier ? seconds - limit() - barrier : 0; }
};

struct LayerShare {
  int32_t layer = -1;  // -1: embedding and head
  double prefill = 0, decode = 0;
};

struct StepShare {
  Stretch span;
  int64_t rows = 0;
  bool prefill = false;
  size_t first_call = 0, end_call = 0;
};

struct NamedCall {
  std::string name;
  int32_t layer = -1;
};

// How many tokens each expert of a layer had, prompt and answer together.
struct ExpertLoad {
  int32_t layer = -1;
  std::vector<int64_t> tokens;
};

struct Explanation {
  std::vector<PhaseShare> phases;  // they add up to the whole
  std::vector<StepShare> steps;
  std::vector<OpShare> prefill, decode;  // longest first
  std::vector<LayerShare> layers;
  std::vector<ExpertLoad> experts;  // of layers that have some
  std::vector<NamedCall> names;     // of every call
  double first_token = 0;           // seconds from the start
  double token = 0;                 // mean of the tokens after it
  Floor prefill_floor, decode_floor;
};

// `handover` is what giving work to all workers and waiting for them takes without any work (0 with one worker).
Explanation explain(const CallOps& calls, const RequestTimeline& timeline, const Model& model, const Ceilings& ceilings,
                    double handover);

// Time that grows with a length: a + b x + c x^2, by least squares; of at least three points.
struct Growth {
  double fixed = 0, linear = 0, square = 0;
  double at(double x) const { return fixed + linear * x + square * x * x; }
};
Growth fit_growth(std::span<const std::pair<double, double>> points);

}  // namespace millrace
