// What Q3_K and Q6_K have in common: 16 subgroups of 16 values, x = unit * scale * code, where unit is a float16 of the
// whole group, and scales and codes are signed whole numbers. Only used when quantising; pure.
#pragma once

#include <cstdint>

#include "tensor/importance.h"

namespace millrace::formats {

struct SignedScales {
  uint16_t unit = 0;
  int8_t scales[16] = {};
  int8_t codes[256] = {};  // within [low, high]
};

// Scales within [-most - 1, most], codes within [low, high].
SignedScales choose_signed_scales(const float* x, const float* w, int most, int low, int high);

// What codes can stand for with such scales.
void signed_grid(float unit, const int8_t* scales, int low, int high, Grid& grid);

}  // namespace millrace::formats
