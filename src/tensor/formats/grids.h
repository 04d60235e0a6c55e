// The grids of the IQ formats: which combinations of neighbouring values each can name. A row is a word of eight codes
// of two bits or four codes of four bits, the first lowest; what a code stands for is the format's. Constant; any
// thread.
#pragma once

#include <cstdint>

namespace millrace::formats {

// Eight values a row (grids8.cpp).
extern const uint16_t kIQ2XSGrid[512], kIQ2SGrid[1024], kIQ1Grid[2048];
// Four values a row (grids4.cpp).
extern const uint16_t kIQ3XXSGrid[256], kIQ3SGrid[512];

// What codes stand for: sizes in IQ2, sizes in IQ3_XXS and IQ3_S (which is 2 q + 1). In IQ1 it is q - 1.
inline constexpr uint8_t kIQ2Sizes[4] = {8, 25, 43, 0};
inline constexpr uint8_t kIQ3XXSSizes[8] = {4, 12, 20, 28, 36, 44, 52, 62};

}  // namespace millrace::formats
