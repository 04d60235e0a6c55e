// Walking over a row of groups, shared by the files of the quantised formats. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tensor/formats/fit.h"
#include "tensor/formats/layout.h"
#include "tensor/importance.h"

namespace millrace::formats {

// read(group, out) for each group of `kValues` values.
template <class Group, int kValues, class Read>
void read_groups(const std::byte* in, float* out, int64_t values, Read read) {
  for (int64_t done = 0; done < values; done += kValues) {
    read(*reinterpret_cast<const Group*>(in), out + done);
    in += sizeof(Group);
  }
}

// write(numbers, weights, group) for each group; the numbers are a copy in which nothing is NaN or huge, the weights
// say what their errors count (null: all alike).
template <class Group, int kValues, class Write>
void write_groups(const float* in, const float* importance, std::byte* out, int64_t values, Write write) {
  float numbers[kValues], weights[kValues];
  for (int64_t done = 0; done < values; done += kValues) {
    fit::load(in + done, numbers, kValues);
    const bool weighed = fit::weigh(numbers, importance != nullptr ? importance + done : nullptr, kValues, weights);
    write(numbers, weighed ? weights : nullptr, *reinterpret_cast<Group*>(out));
    out += sizeof(Group);
  }
}

// One step and one offset for 32 values.
inline void even_grid(float step, float offset, int low, int high, Grid& grid) {
  grid.low = low, grid.high = high, grid.levels = nullptr;
  std::fill_n(grid.step, 32, step);
  std::fill_n(grid.offset, 32, offset);
}

// Codes of four bits for 32 values: value i low and value i + 16 high in byte i.
inline void pack_halves(const int8_t* codes, uint8_t* out) {
  for (int i = 0; i < 16; ++i) out[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
}

}  // namespace millrace::formats
