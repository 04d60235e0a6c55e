// Rotary frequencies from a configuration: every scaling people use (linear, dynamic, yarn, longrope, llama3), of both
// config generations, computed once at load. What depends on the length of a sequence in other implementations is
// decided here by the longest sequence that will be run, so that a row never depends on its neighbours.
#pragma once

#include <string_view>

#include "model/config.h"
#include "model/spec.h"

namespace millrace {

struct RopeChoice {
  int32_t head_dim = 0;
  double theta = 10000;          // unless the configuration has one
  double partial = 1;            // part of a head that turns, unless the configuration says
  bool partial_allowed = false;  // whether the architecture knows such a part
  bool neighbours = false;       // pairs are neighbours instead of halves
  std::string_view layer_type;   // picks an entry where rope_parameters has one per type of layer
  std::string_view theta_key = "rope_theta";
  bool scaled = true;  // false: the base alone (Gemma 3's local layers)
};

// theta^(-2i/dims), rounded where a float32 implementation rounds.
std::vector<float> rotary_powers(double theta, int32_t dims);
// What YaRN multiplies sines and cosines by for a stretch of `factor`, unless a file says otherwise.
double yarn_magnitude(double factor, double scale);

// Adds the frequencies to spec.ropes unless they are there, and returns their index; -1 if the configuration has no
// rotation for that type of layer. Mistakes are noted in the config.
int32_t add_rope(Config& config, ModelSpec& spec, const RopeChoice& choice);

}  // namespace millrace
