// What Q3_K and Q6_K have in common: 16 subgroups of 16 values, x = unit * scale * code, where unit is a float16 of the
// whole group, and scales and codes are signed whole numbers. Only used when quantising; pure.
#pragma once

#include <cstdint>

namespace millrace::formats {

struct SignedScales {
  uint16_t unit = 0;
  int8_t scales[16] = {};
  int8_t codes[256] = {};  // within [low, high]
};

// Scales within [-most - 1, most], codes within [low, high].
SignedScales choose_signed_scales(const float* x, int most, int low, int high);

}  // namespace millrace::formats
