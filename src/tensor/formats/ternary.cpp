// TQ1_0, TQ2_0, Q1_0 and Q2_0: a factor and a digit of one or two bits, or of base three, for each value.
#include "tensor/formats/formats.h"
#include "tensor/formats/groups.h"

namespace millrace::formats {
namespace {

// Digit n of a byte that holds a fraction of base three, times 256 and rounded up: what is above the point after n
// multiplications by three.
float digit(uint8_t byte, int n) {
  constexpr int kPowers[5] = {1, 3, 9, 27, 81};
  const int fraction = byte * kPowers[n] & 255;
  return static_cast<float>((fraction * 3 >> 8) - 1);
}

}  // namespace

void tq1_0_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::TQ1, 256>(in, out, values, [](const layout::TQ1& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int n = 0; n < 5; ++n) {
      for (int i = 0; i < 32; ++i) x[32 * n + i] = d * digit(group.fives[i], n);
      for (int i = 0; i < 16; ++i) x[160 + 16 * n + i] = d * digit(group.fives[32 + i], n);
    }
    for (int n = 0; n < 4; ++n)
      for (int i = 0; i < 4; ++i) x[240 + 4 * n + i] = d * digit(group.fours[i], n);
  });
}

void tq2_0_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::TQ2, 256>(in, out, values, [](const layout::TQ2& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int i = 0; i < 256; ++i)
      x[i] = d * static_cast<float>((group.codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1);
  });
}

void q1_0_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q1_0, 128>(in, out, values, [](const layout::Q1_0& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int i = 0; i < 128; ++i) x[i] = (group.bits[i / 8] >> (i % 8) & 1) != 0 ? d : -d;
  });
}

void q2_0_to_float(const std::byte* in, float* out, int64_t values) {
  read_groups<layout::Q2_0, 64>(in, out, values, [](const layout::Q2_0& group, float* x) {
    const float d = layout::load_f16(group.d);
    for (int i = 0; i < 64; ++i) x[i] = static_cast<float>((group.codes[i / 4] >> (i % 4 * 2) & 3) - 1) * d;
  });
}

}  // namespace millrace::formats
