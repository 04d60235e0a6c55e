// Numbers that stand alone: floats of 8 to 64 bits and integers. Reads any alignment.
#include <cstring>

#include "tensor/formats/formats.h"
#include "tensor/half.h"

namespace millrace::formats {
namespace {

template <class Stored, class Convert>
void widen(const std::byte* in, float* out, int64_t values, Convert convert) {
  for (int64_t i = 0; i < values; ++i) {
    Stored number;
    std::memcpy(&number, in + i * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
    out[i] = convert(number);
  }
}

template <class Stored>
void cast(const std::byte* in, float* out, int64_t values) {
  widen<Stored>(in, out, values, [](Stored number) { return static_cast<float>(number); });
}

template <class Stored, class Convert>
void narrow(const float* in, std::byte* out, int64_t values, Convert convert) {
  for (int64_t i = 0; i < values; ++i) {
    const Stored number = convert(in[i]);
    std::memcpy(out + i * static_cast<int64_t>(sizeof(Stored)), &number, sizeof(Stored));
  }
}

}  // namespace

void f32_to_float(const std::byte* in, float* out, int64_t values) {
  if (values > 0) std::memcpy(out, in, static_cast<size_t>(values) * sizeof(float));
}
void f16_to_float(const std::byte* in, float* out, int64_t values) { widen<uint16_t>(in, out, values, f16_to_f32); }
void bf16_to_float(const std::byte* in, float* out, int64_t values) { widen<uint16_t>(in, out, values, bf16_to_f32); }
void f8_e4m3_to_float(const std::byte* in, float* out, int64_t values) {
  widen<uint8_t>(in, out, values, f8_e4m3_to_f32);
}
void f8_e5m2_to_float(const std::byte* in, float* out, int64_t values) {
  widen<uint8_t>(in, out, values, f8_e5m2_to_f32);
}
void f8_e8m0_to_float(const std::byte* in, float* out, int64_t values) {
  widen<uint8_t>(in, out, values, f8_e8m0_to_f32);
}
void f64_to_float(const std::byte* in, float* out, int64_t values) { cast<double>(in, out, values); }
void i8_to_float(const std::byte* in, float* out, int64_t values) { cast<int8_t>(in, out, values); }
void i16_to_float(const std::byte* in, float* out, int64_t values) { cast<int16_t>(in, out, values); }
void i32_to_float(const std::byte* in, float* out, int64_t values) { cast<int32_t>(in, out, values); }
void i64_to_float(const std::byte* in, float* out, int64_t values) { cast<int64_t>(in, out, values); }
void u8_to_float(const std::byte* in, float* out, int64_t values) { cast<uint8_t>(in, out, values); }
void u16_to_float(const std::byte* in, float* out, int64_t values) { cast<uint16_t>(in, out, values); }
void u32_to_float(const std::byte* in, float* out, int64_t values) { cast<uint32_t>(in, out, values); }
void u64_to_float(const std::byte* in, float* out, int64_t values) { cast<uint64_t>(in, out, values); }
void boolean_to_float(const std::byte* in, float* out, int64_t values) {
  widen<uint8_t>(in, out, values, [](uint8_t flag) { return flag != 0 ? 1.0f : 0.0f; });
}

void f32_from_float(const float* in, std::byte* out, int64_t values) {
  if (values > 0) std::memcpy(out, in, static_cast<size_t>(values) * sizeof(float));
}
void f16_from_float(const float* in, std::byte* out, int64_t values) { narrow<uint16_t>(in, out, values, f32_to_f16); }
void bf16_from_float(const float* in, std::byte* out, int64_t values) {
  narrow<uint16_t>(in, out, values, f32_to_bf16);
}
void f8_e4m3_from_float(const float* in, std::byte* out, int64_t values) {
  narrow<uint8_t>(in, out, values, f32_to_f8_e4m3);
}
void f8_e5m2_from_float(const float* in, std::byte* out, int64_t values) {
  narrow<uint8_t>(in, out, values, f32_to_f8_e5m2);
}
void f64_from_float(const float* in, std::byte* out, int64_t values) {
  narrow<double>(in, out, values, [](float number) { return static_cast<double>(number); });
}

}  // namespace millrace::formats
