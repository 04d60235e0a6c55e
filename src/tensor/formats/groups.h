// Walking over a row of groups, shared by the files of the quantised formats. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/formats/fit.h"
#include "tensor/formats/layout.h"

namespace millrace::formats {

// read(group, out) for each group of `kValues` values.
template <class Group, int kValues, class Read>
void read_groups(const std::byte* in, float* out, int64_t values, Read read) {
  for (int64_t done = 0; done < values; done += kValues) {
    read(*reinterpret_cast<const Group*>(in), out + done);
    in += sizeof(Group);
  }
}

// write(numbers, group) for each group; the numbers are a copy in which nothing is NaN or huge.
template <class Group, int kValues, class Write>
void write_groups(const float* in, std::byte* out, int64_t values, Write write) {
  float numbers[kValues];
  for (int64_t done = 0; done < values; done += kValues) {
    fit::load(in + done, numbers, kValues);
    write(numbers, *reinterpret_cast<Group*>(out));
    out += sizeof(Group);
  }
}

// Codes of four bits for 32 values: value i low and value i + 16 high in byte i.
inline void pack_halves(const int8_t* codes, uint8_t* out) {
  for (int i = 0; i < 16; ++i) out[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
}

}  // namespace millrace::formats
